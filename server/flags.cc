#include "server/flags.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/version.h"
#include "server/config/config.h"
#include "server/exit_codes.h"

namespace datasetd {
namespace {

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", std::string("datasetd ") + kVersion);
  app.add_option("--config", flags.config_path, "YAML configuration file");
  CLI::Option* const socket_path = app.add_option(
      "--socket_path", flags.socket_path,
      "Path of the gRPC socket; the attach socket is created next to it");
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
  app.add_option("--exit_when_idle", flags.exit_when_idle,
                 "Shut down after this time without a client, as 300s; 0s: "
                 "never")
      ->type_name("DURATION");
  app.add_option("--set", flags.settings,
                 "Set a key of the configuration file, as drain_timeout=1s; "
                 "repeatable")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  CLI::Option* const directory =
      app.add_option("--private", flags.private_directory,
                     "Run in the background for this user alone, with sockets "
                     "and log in directory DIR, which is removed at the end. "
                     "Exits with 0 and prints the daemon's pid once a daemon "
                     "serves there, this one or another")
          ->type_name("DIR")
          ->excludes(socket_path);
  app.add_option("--log_path", flags.log_path,
                 "With --private: file to append the log to; default: "
                 "datasetd.log in DIR")
      ->type_name("FILE")
      ->needs(directory);
  app.add_flag("--check_config", flags.check_config,
               "Validate the configuration and exit");
}

// The daemon changes its working directory.
void MakeAbsolute(std::string& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  if (!path.empty() && !error) path = absolute.lexically_normal().string();
}

void SetPrivateDefaults(const Flags& flags, v1::Config* config) {
  config->set_socket_path(flags.private_directory + "/datasetd.sock");
  if (config->socket_mode().empty()) config->set_socket_mode("0600");
  // What this user can read.
  if (config->data_roots().empty()) config->add_data_roots("/");
  // In memory of this user's, as what he pushes is before.
  if (config->push_spool_mib() == 0) config->set_push_spool_mib(65536);
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
  if (!flags.private_directory.empty()) {
    for (std::string* const path :
         {&flags.private_directory, &flags.log_path, &flags.config_path}) {
      MakeAbsolute(*path);
    }
    if (flags.private_directory.back() == '/') {
      flags.private_directory.pop_back();
    }
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
  std::vector<std::string> settings = flags.settings;
  if (!flags.exit_when_idle.empty()) {
    settings.push_back("exit_when_idle=" + flags.exit_when_idle);
  }
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("--set '", setting, "': expected KEY=VALUE"));
    }
    DATASETD_ASSIGN_OR_RETURN(
        const v1::Config set,
        ParseConfig(absl::StrCat(setting.substr(0, equals), ": ",
                                 setting.substr(equals + 1)),
                    absl::StrCat("--set ", setting)));
    config.MergeFrom(set);
  }
  if (!flags.socket_path.empty()) {
    config.set_socket_path(flags.socket_path);
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
  if (!flags.private_directory.empty()) SetPrivateDefaults(flags, &config);
  ApplyDefaults(&config);
  const absl::Status status = ValidateConfig(config);
  if (!status.ok()) return status;
  return config;
}

}  // namespace datasetd
