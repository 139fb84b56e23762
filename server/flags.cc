#include "server/flags.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "proto/version.h"
#include "server/config/config.h"
#include "server/exit_codes.h"

namespace datasetd {
namespace {

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", std::string("datasetd ") + kVersion);
  app.add_option("--config", flags.config_path, "YAML configuration file");
  app.add_option("--socket_path", flags.socket_path,
                 "Path of the gRPC socket; the attach socket is created "
                 "next to it");
  app.add_option("--device", flags.devices,
                 "Device to serve: cpu, cuda:N or GPU-UUID; repeatable");
  app.add_option("--data_root", flags.data_roots,
                 "Directory that datasets may be read from; repeatable");
  app.add_option("--memory_budget_mib", flags.memory_budget_mib,
                 "Memory limit of each device, in MiB");
  app.add_option("--pinned_budget_mib", flags.pinned_budget_mib,
                 "Limit of pinned host memory for samples, in MiB");
  app.add_option("--host_threads", flags.host_threads,
                 "Threads of the host backend, at most 1024; 0: one per core");
  app.add_option("--log_level", flags.log_level,
                 "trace, debug, info, warn, error or off");
  app.add_option_function<int>(
         "--exit_with_parent",
         [&flags](int pid) { flags.exit_with_parent = pid; },
         "Shut down when process PID ends; default: the parent "
         "process")
      ->type_name("[PID]")
      ->expected(0, 1)
      ->default_str("0");
  app.add_flag("--check_config", flags.check_config,
               "Validate the configuration and exit");
}

}  // namespace

std::optional<int> ParseFlags(int argc, char** argv, Flags& flags) {
  CLI::App app("Serve datasets from device memory to training jobs.");
  app.name("datasetd");
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadConfiguration;
  }
  return std::nullopt;
}

absl::StatusOr<v1::Config> MakeConfig(const Flags& flags) {
  v1::Config config;
  if (!flags.config_path.empty()) {
    auto loaded = LoadConfig(flags.config_path);
    if (!loaded.ok()) return loaded.status();
    config = *std::move(loaded);
  }
  if (!flags.socket_path.empty()) {
    config.set_socket_path(flags.socket_path);
    config.clear_attach_socket_path();
  }
  if (!flags.devices.empty()) {
    config.mutable_devices()->Assign(flags.devices.begin(),
                                     flags.devices.end());
  }
  if (!flags.data_roots.empty()) {
    config.mutable_data_roots()->Assign(flags.data_roots.begin(),
                                        flags.data_roots.end());
  }
  if (flags.pinned_budget_mib != 0) {
    config.set_pinned_budget_mib(flags.pinned_budget_mib);
  }
  if (flags.memory_budget_mib != 0) {
    config.set_memory_budget_mib(flags.memory_budget_mib);
  }
  if (flags.host_threads != 0) config.set_host_threads(flags.host_threads);
  if (!flags.log_level.empty()) config.set_log_level(flags.log_level);
  ApplyDefaults(&config);
  const absl::Status status = ValidateConfig(config);
  if (!status.ok()) return status;
  return config;
}

}  // namespace datasetd
