// A list of fields and what each is made of: "image:x_train,label:y_train".

#ifndef DATASETD_SERVER_READERS_FIELD_NAMES_H_
#define DATASETD_SERVER_READERS_FIELD_NAMES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/readers/reader.h"

namespace datasetd {

struct FieldName {
  std::string field;
  std::string source;  // the field's own name where none is given
};

// Option `option`; empty where it is not given. At most 64.
//   INVALID_ARGUMENT  a name that cannot be one, or is there twice
absl::StatusOr<std::vector<FieldName>> ParseFieldNames(
    const SourceSpec& spec, absl::string_view option);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_FIELD_NAMES_H_
