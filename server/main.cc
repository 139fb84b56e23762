// The daemon's process: flags, signals, the service manager.
//
// Exit codes: 0 clean, 1 failure, 2 bad configuration or flags.

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/config.h"
#include "cuda/file_descriptor.h"
#include "server/logging.h"
#include "server/sd_notify.h"
#include "server/server.h"
#include "server/version.h"

namespace datasetd {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitBadConfiguration = 2;

struct Flags {
  std::string config_path;
  std::string socket_path;
  std::vector<std::string> devices;
  std::vector<std::string> data_roots;
  uint64_t memory_budget_mib = 0;
  uint32_t host_threads = 0;
  std::string log_level;
  bool exit_with_parent = false;
  bool check_config = false;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", std::string("datasetd ") + kVersion);
  app.add_option("--config", flags.config_path, "YAML configuration file");
  app.add_option("--socket_path", flags.socket_path,
                 "gRPC socket; the attach socket lies beside it");
  app.add_option("--device", flags.devices, "Device to serve; repeatable");
  app.add_option("--data_root", flags.data_roots,
                 "Directory that datasets may be read from; repeatable");
  app.add_option("--memory_budget_mib", flags.memory_budget_mib,
                 "Memory of each device that the daemon may use");
  app.add_option("--host_threads", flags.host_threads,
                 "Threads of the host backend; 0: one per core");
  app.add_option("--log_level", flags.log_level,
                 "trace, debug, info, warn, error or off");
  app.add_flag("--exit_with_parent", flags.exit_with_parent,
               "Shut down when the process that started this one ends");
  app.add_flag("--check_config", flags.check_config,
               "Check the configuration and exit");
}

// Flags override the file.
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

// A feed takes six descriptors.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// REQUIRES: the configuration is valid.
void StartLogging(const v1::Config& config) {
  const absl::Status status = InitLogging(
      config.log_level(), std::map<std::string, std::string>(
                              config.log_levels().begin(),
                              config.log_levels().end()));
  if (!status.ok()) {
    std::fprintf(stderr, "datasetd: %s\n",
                 std::string(status.message()).c_str());
    std::abort();
  }
}

int Serve(const Flags& flags, const v1::Config& config, int signals,
          int parent) {
  auto server = Server::Start(config);
  if (!server.ok()) {
    Log(LogSubsystem::kServer).critical("cannot start: {}",
                                 std::string(server.status().message()));
    return kExitFailure;
  }
  bool is_ready = false;
  while (true) {
    if (!is_ready) {
      const absl::Status status =
          (*server)->AwaitDatasets(absl::Milliseconds(100));
      if (status.ok()) {
        is_ready = true;
        SdNotify("READY=1\nSTATUS=serving");
        Log(LogSubsystem::kServer).info("ready");
      } else if (absl::IsDeadlineExceeded(status)) {
        SdNotify(absl::StrCat("STATUS=", status.message()));
      } else {
        Log(LogSubsystem::kServer).critical("cannot load: {}",
                                     std::string(status.message()));
        return kExitFailure;
      }
    }
    pollfd waits[] = {{signals, POLLIN, 0}, {parent, POLLIN, 0}};
    poll(waits, parent >= 0 ? 2 : 1, is_ready ? -1 : 0);
    if (waits[1].revents != 0) {
      Log(LogSubsystem::kServer).info("the parent process has ended");
      break;
    }
    if (waits[0].revents == 0) continue;
    signalfd_siginfo info;
    if (read(signals, &info, sizeof(info)) != sizeof(info)) continue;
    if (info.ssi_signo != SIGHUP) break;
    const auto reloaded = MakeConfig(flags);
    if (reloaded.ok()) {
      StartLogging(*reloaded);
      Log(LogSubsystem::kServer).info("log levels reloaded");
    } else {
      Log(LogSubsystem::kServer).error("configuration not reloaded: {}",
                                std::string(reloaded.status().message()));
    }
  }
  SdNotify("STOPPING=1\nSTATUS=draining");
  Log(LogSubsystem::kServer).info("draining");
  if (!(*server)->Drain()) {
    Log(LogSubsystem::kServer).warn("drain_timeout passed with leases open");
  }
  return 0;
}

int Main(int argc, char** argv) {
  // Debian's Abseil looks for lock cycles at every lock by default; the tests
  // under ThreadSanitizer do that once.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  CLI::App app("Serves datasets from device memory to training jobs.");
  app.name("datasetd");
  Flags flags;
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadConfiguration;
  }
  const auto config = MakeConfig(flags);
  if (!config.ok()) {
    std::fprintf(stderr, "datasetd: %s\n",
                 std::string(config.status().message()).c_str());
    return kExitBadConfiguration;
  }
  if (flags.check_config) return 0;
  StartLogging(*config);
  RaiseDescriptorLimit();

  // Before any thread is made, so that all inherit the mask.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // Whoever read the log may be gone.
  std::signal(SIGPIPE, SIG_IGN);
  const FileDescriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  FileDescriptor parent;
  if (flags.exit_with_parent) {
    parent = FileDescriptor(
        static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0)));
  }
  return Serve(flags, *config, signals.get(), parent.get());
}

}  // namespace
}  // namespace datasetd

int main(int argc, char** argv) { return datasetd::Main(argc, argv); }
