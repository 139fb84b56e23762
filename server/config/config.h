// The daemon's configuration: v1::Config (proto/datasetd/v1/server.proto), read
// from a YAML file with the same keys.
//
//   socket_path: /run/datasetd/datasetd.sock
//   data_roots: [/data]
//   log_levels: {attach: debug}
//   datasets:
//     - {name: train, format: cifar10, path: /data/cifar-10-batches-bin}
//
// Order of use: LoadConfig, flags, ApplyDefaults, ValidateConfig.

#ifndef DATASETD_SERVER_CONFIG_CONFIG_H_
#define DATASETD_SERVER_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "datasetd/v1/server.pb.h"
#include "google/protobuf/duration.pb.h"
#include "server/dataset/per_user_limit.h"

namespace datasetd {

// Limits of all users together: on calls that run, and on calls among them that
// wait for a load.
inline constexpr int kMaxCalls = 48;
inline constexpr int kMaxWaitingLoads = 32;

// Reads the file without applying defaults.
//   NOT_FOUND, PERMISSION_DENIED, ...  the file cannot be read
//   INVALID_ARGUMENT                   as YamlToProto
absl::StatusOr<v1::Config> LoadConfig(const std::string& path);

// Likewise from text; errors name `source_name`.
absl::StatusOr<v1::Config> ParseConfig(absl::string_view yaml_text,
                                       absl::string_view source_name);

// Sets unset fields to the defaults documented in server.proto. Leaves unset
// what depends on the machine: no devices, a memory budget of 0, 0 host
// threads.
void ApplyDefaults(v1::Config* config);

// REQUIRES: ApplyDefaults was called.
//   INVALID_ARGUMENT  names the key, its value and the allowed values
absl::Status ValidateConfig(const v1::Config& config);

absl::Duration FromProto(const google::protobuf::Duration& duration);

// A limit of v1::UserLimits. If it is set, it applies to all users. Else it is
// half of `total`, and does not apply to root and the daemon's own user: a
// daemon started by a user gives that user everything.
PerUserLimit UserLimit(bool is_set, uint64_t limit, uint64_t total);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CONFIG_CONFIG_H_
