// The daemon's main program: flags, signals, the service manager.
//
// Exit codes: 0 clean, 1 failure, 2 invalid configuration or flags.

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "proto/version.h"
#include "server/config/config.h"
#include "server/devices/device_nodes.h"
#include "server/devices/device_probe.h"
#include "server/log/logging.h"
#include "server/server.h"
#include "server/systemd/sd_notify.h"
#include "server/systemd/socket_activation.h"
#include "server/systemd/watchdog.h"

namespace datasetd {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitBadConfiguration = 2;

constexpr absl::Duration kDeviceRetry = absl::Seconds(2);
// Extension of the start timeout requested with each report of progress.
constexpr absl::Duration kProgressTimeout = absl::Seconds(60);
// The driver may have to compile the kernels, for each GPU some minutes.
constexpr absl::Duration kOpenDevicesTimeout = absl::Minutes(15);
// After drain_timeout.
constexpr absl::Duration kStopTimeout = absl::Milliseconds(1500);
constexpr absl::Duration kMaxPoll = absl::Hours(1);
// Between two looks for clients, with exit_when_idle.
constexpr absl::Duration kIdlePoll = absl::Seconds(1);

struct Flags {
  std::string config_path;
  std::string socket_path;
  std::vector<std::string> devices;
  std::vector<std::string> data_roots;
  uint64_t memory_budget_mib = 0;
  uint64_t pinned_budget_mib = 0;
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
  app.add_option("--device", flags.devices,
                 "Device to serve, cpu, cuda:N or GPU-UUID; repeatable");
  app.add_option("--data_root", flags.data_roots,
                 "Directory that datasets may be read from; repeatable");
  app.add_option("--memory_budget_mib", flags.memory_budget_mib,
                 "Memory of each device that the daemon may use");
  app.add_option("--pinned_budget_mib", flags.pinned_budget_mib,
                 "Host memory that the daemon may pin for samples");
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

// A feed uses six descriptors.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// REQUIRES: the configuration is valid.
void StartLogging(const v1::Config& config) {
  const absl::Status status =
      InitLogging(config.log_level(),
                  std::map<std::string, std::string>(
                      config.log_levels().begin(), config.log_levels().end()));
  if (!status.ok()) {
    std::fprintf(stderr, "datasetd: %s\n",
                 std::string(status.message()).c_str());
    std::abort();
  }
}

// The descriptors that the process waits on.
struct Events {
  int signals;
  int parent;  // pidfd, or -1
};
enum class Event { kNone, kReload, kStop };

Event AwaitEvent(const Events& events, absl::Duration timeout) {
  pollfd waits[] = {{events.signals, POLLIN, 0}, {events.parent, POLLIN, 0}};
  const absl::Duration rounded = absl::Ceil(
      std::max(timeout, absl::ZeroDuration()), absl::Milliseconds(1));
  const int milliseconds = timeout == absl::InfiniteDuration()
                               ? -1
                               : static_cast<int>(absl::ToInt64Milliseconds(
                                     std::min(rounded, kMaxPoll)));
  poll(waits, events.parent >= 0 ? 2 : 1, milliseconds);
  if (waits[1].revents != 0) {
    Log(LogSubsystem::kServer).info("the parent process has ended");
    return Event::kStop;
  }
  signalfd_siginfo info;
  if (waits[0].revents == 0 ||
      read(events.signals, &info, sizeof(info)) != sizeof(info)) {
    return Event::kNone;
  }
  return info.ssi_signo == SIGHUP ? Event::kReload : Event::kStop;
}

void Reload(const Flags& flags) {
  const auto reloaded = MakeConfig(flags);
  if (reloaded.ok()) {
    StartLogging(*reloaded);
    Log(LogSubsystem::kServer).info("log levels reloaded");
  } else {
    Log(LogSubsystem::kServer)
        .error("configuration not reloaded: {}",
               std::string(reloaded.status().message()));
  }
}

std::string ExtendTimeout(absl::Duration duration) {
  return absl::StrCat("EXTEND_TIMEOUT_USEC=",
                      absl::ToInt64Microseconds(duration));
}

enum class Wait { kDone, kStop, kFailed };

// Returns when the devices are available, device_wait has passed, or waiting is
// useless. REQUIRES: this process has one thread.
Wait WaitForDevices(const v1::Config& config, const Events& events,
                    const Flags& flags) {
  const absl::Duration wait = FromProto(config.device_wait());
  if (wait <= absl::ZeroDuration()) return Wait::kDone;
  const bool is_any_gpu = config.devices().empty();
  if (is_any_gpu && !HasNvidiaGpu()) return Wait::kDone;
  const RealClock clock;
  const absl::Duration deadline = clock.Monotonic() + wait;
  for (bool is_first = true;; is_first = false) {
    const absl::Status status = ProbeDevices(config);
    if (status.ok()) return Wait::kDone;
    // Built without CUDA.
    if (is_any_gpu && absl::IsUnimplemented(status)) return Wait::kDone;
    const std::string node = FindForbiddenNode();
    if (!node.empty()) {
      Log(LogSubsystem::kServer)
          .critical(
              "{} is there, but forbidden: it came after the service manager "
              "had "
              "listed the devices of this service. Ending, so that it starts "
              "the "
              "service with a new list; if this comes again, see DeviceAllow= "
              "of "
              "its unit",
              node);
      return Wait::kFailed;
    }
    const absl::Duration left = deadline - clock.Monotonic();
    const std::string text =
        absl::StrCat("waiting for devices: ", status.message(),
                     "; a try every ", absl::FormatDuration(kDeviceRetry), ", ",
                     absl::ToInt64Seconds(std::max(left, absl::ZeroDuration())),
                     " s are left of device_wait");
    if (left <= absl::ZeroDuration()) {
      Log(LogSubsystem::kServer)
          .warn("device_wait ({}) is over: {}", absl::FormatDuration(wait),
                std::string(status.message()));
      return Wait::kDone;
    }
    if (is_first) Log(LogSubsystem::kServer).warn("{}", text);
    SdNotify(
        absl::StrCat("STATUS=", text, "\n", ExtendTimeout(kProgressTimeout)));
    switch (AwaitEvent(events, std::min(left, kDeviceRetry))) {
      case Event::kNone:
        break;
      case Event::kReload:
        Reload(flags);
        break;
      case Event::kStop:
        return Wait::kStop;
    }
  }
}

void FeedWatchdog(Watchdog& watchdog, Server& server) {
  if (!watchdog.IsDue()) return;
  const absl::Status status = watchdog.Check(server.ProducersProgress());
  server.PingProducers();
  if (status.ok()) {
    SdNotify("WATCHDOG=1");
    return;
  }
  Log(LogSubsystem::kServer)
      .critical("watchdog not fed: {}", std::string(status.message()));
}

// Drains for at most drain_timeout.
void Drain(const v1::Config& config, Watchdog& watchdog, Server& server) {
  const absl::Duration timeout = FromProto(config.drain_timeout());
  SdNotify(absl::StrCat("STOPPING=1\nSTATUS=draining\n",
                        ExtendTimeout(timeout + kProgressTimeout)));
  Log(LogSubsystem::kServer).info("draining");
  server.BeginDrain();
  const RealClock clock;
  const absl::Duration deadline = clock.Monotonic() + timeout;
  while (true) {
    FeedWatchdog(watchdog, server);
    const absl::Duration left = deadline - clock.Monotonic();
    if (server.AwaitDrained(std::min(left, watchdog.TimeToNext()))) return;
    if (left <= absl::ZeroDuration()) {
      Log(LogSubsystem::kServer).warn("drain_timeout passed with leases open");
      return;
    }
  }
}

// Tells when a daemon with exit_when_idle is to end.
class IdleEnd {
 public:
  explicit IdleEnd(absl::Duration limit)
      : limit_(limit), last_use_(clock_.Monotonic()) {}

  // `is_used` tells whether the daemon is used now. Never due if `limit` is 0.
  bool IsDue(bool is_used) {
    const absl::Duration now = clock_.Monotonic();
    if (is_used) last_use_ = now;
    return limit_ > absl::ZeroDuration() && now - last_use_ >= limit_;
  }
  absl::Duration TimeToNext() const {
    return limit_ <= absl::ZeroDuration() ? absl::InfiniteDuration()
                                          : std::min(limit_, kIdlePoll);
  }

 private:
  const absl::Duration limit_;
  const RealClock clock_;
  absl::Duration last_use_;
};

int Serve(const Flags& flags, const v1::Config& config, const Events& events,
          std::optional<ActivatedSockets> sockets) {
  switch (WaitForDevices(config, events, flags)) {
    case Wait::kDone:
      break;
    case Wait::kStop:
      return 0;
    case Wait::kFailed:
      return kExitFailure;
  }
  SdNotify(absl::StrCat("STATUS=opening devices\n",
                        ExtendTimeout(kOpenDevicesTimeout)));
  auto server = Server::Start(config, std::move(sockets));
  if (!server.ok()) {
    Log(LogSubsystem::kServer)
        .critical("cannot start: {}", std::string(server.status().message()));
    return kExitFailure;
  }
  const RealClock clock;
  Watchdog watchdog(Watchdog::IntervalFromEnvironment(), &clock);
  IdleEnd idle_end(FromProto(config.exit_when_idle()));
  bool is_ready = false;
  std::string progress;
  while (true) {
    FeedWatchdog(watchdog, **server);
    if (!is_ready) {
      const absl::Status status =
          (*server)->AwaitDatasets(absl::Milliseconds(100));
      if (status.ok()) {
        is_ready = true;
        SdNotify("READY=1\nSTATUS=serving");
        Log(LogSubsystem::kServer).info("ready");
      } else if (!absl::IsDeadlineExceeded(status)) {
        Log(LogSubsystem::kServer)
            .critical("cannot load: {}", std::string(status.message()));
        return kExitFailure;
      } else if (progress != status.message()) {
        // A load without progress gets no more time.
        progress = std::string(status.message());
        SdNotify(absl::StrCat("STATUS=", progress, "\n",
                              ExtendTimeout(kProgressTimeout)));
      }
    }
    if (idle_end.IsDue(/*is_used=*/!is_ready || (*server)->WasUsed())) {
      Log(LogSubsystem::kServer)
          .info("no client for {} (exit_when_idle): ending",
                absl::FormatDuration(FromProto(config.exit_when_idle())));
      break;
    }
    const absl::Duration wait =
        std::min(watchdog.TimeToNext(), idle_end.TimeToNext());
    const Event event =
        AwaitEvent(events, is_ready ? wait : absl::ZeroDuration());
    if (event == Event::kStop) break;
    if (event == Event::kReload) Reload(flags);
  }
  Drain(config, watchdog, **server);
  (*server)->Stop(kStopTimeout);
  return 0;
}

int Main(int argc, char** argv) {
  // Debian's Abseil searches for lock cycles at every lock by default; the
  // ThreadSanitizer tests do this instead.
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
  auto sockets = TakeActivatedSockets();
  absl::Status status = sockets.status();
  if (status.ok() && sockets->has_value()) {
    status = CheckPaths(**sockets, config->socket_path(),
                        config->attach_socket_path());
  }
  if (!status.ok()) {
    Log(LogSubsystem::kServer)
        .critical("socket activation: {}", std::string(status.message()));
    return kExitBadConfiguration;
  }
  RaiseDescriptorLimit();

  // Before any thread starts, so that all inherit the mask.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // The reader of the log may be gone.
  std::signal(SIGPIPE, SIG_IGN);
  // Exceeding the file size limit is an error like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const FileDescriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  FileDescriptor parent;
  if (flags.exit_with_parent) {
    parent =
        FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getppid(), 0)));
  }
  return Serve(flags, *config, {signals.get(), parent.get()},
               *std::move(sockets));
}

}  // namespace
}  // namespace datasetd

int main(int argc, char** argv) { return datasetd::Main(argc, argv); }
