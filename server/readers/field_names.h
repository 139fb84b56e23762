// Parses a list of fields with their sources: "image:x_train,label:y_train".

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
  std::string source;  // the field's own name if not given
};

// The value of option `option`; empty if it is not set. At most 64 fields.
//   INVALID_ARGUMENT  an invalid or repeated name
absl::StatusOr<std::vector<FieldName>> ParseFieldNames(
    const v1::DatasetSpec& spec, absl::string_view option);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_FIELD_NAMES_H_
