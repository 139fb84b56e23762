// Maps YAML onto a protobuf message: one schema for files and wire.
//
// Keys are field names. The field's type, not the text, decides how a scalar is
// read: 0660 for a string field is the string "0660". A key without a value
// leaves its field unset, but selects the choice in a oneof.
//
//   repeated field  a list              data_roots: [/data, /scratch]
//   map field       a mapping           log_levels: {attach: debug}
//   message         a mapping           - random_crop: {height: 32}
//   Duration        number and unit     drain_timeout: 1m30s
//   enum            name, with or       dtype: float16
//                   without prefix

#ifndef DATASETD_SERVER_CONFIG_YAML_TO_PROTO_H_
#define DATASETD_SERVER_CONFIG_YAML_TO_PROTO_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace datasetd {

// Merges the single document of `yaml_text` into `message`, whose state is
// unspecified after an error.
//   INVALID_ARGUMENT  not UTF-8 or not YAML, an unknown or repeated key, a
//                     value of the wrong kind, a NUL; names `source_name`, line
//                     and key. Also more than 1 MiB of text, or 100,000 nodes
//                     counting aliases.
absl::Status YamlToProto(absl::string_view yaml_text,
                         absl::string_view source_name,
                         google::protobuf::Message* message);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CONFIG_YAML_TO_PROTO_H_
