// The daemon's flags, which override its configuration file.

#ifndef DATASETD_SERVER_FLAGS_H_
#define DATASETD_SERVER_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasetd/v1/server.pb.h"

namespace datasetd {

struct Flags {
  std::string config_path;
  std::string socket_path;
  std::vector<std::string> devices;
  std::vector<std::string> data_roots;
  uint64_t memory_budget_mib = 0;
  uint64_t pinned_budget_mib = 0;
  uint32_t host_threads = 0;
  std::string log_level;
  // 0: the process that started this one.
  std::optional<int> exit_with_parent;
  std::string exit_when_idle;
  // Keys of the configuration file, as "key=value".
  std::vector<std::string> settings;
  // Absolute. Empty: the daemon is not private.
  std::string private_directory;
  std::string log_path;
  bool check_config = false;
};

// An exit code if the process is to end now: after --help, or with wrong flags,
// which it has reported.
std::optional<int> ParseFlags(int argc, char** argv, Flags& flags);

// Reads the file, if there is one, and applies the flags and defaults. Errors
// as LoadConfig, ParseConfig and ValidateConfig.
absl::StatusOr<v1::Config> MakeConfig(const Flags& flags);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FLAGS_H_
