#include "server/lifecycle.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "server/config/config.h"
#include "server/devices/device_nodes.h"
#include "server/devices/device_probe.h"
#include "server/exit_codes.h"
#include "server/log/logging.h"
#include "server/server.h"
#include "server/systemd/sd_notify.h"
#include "server/systemd/self_call.h"
#include "server/systemd/watchdog.h"

namespace datasetd {
namespace {

constexpr absl::Duration kDeviceRetry = absl::Seconds(2);
// Extension of the start timeout requested with each report of progress.
constexpr absl::Duration kProgressTimeout = absl::Seconds(60);
// The driver may have to compile the kernels, for each GPU some minutes.
constexpr absl::Duration kOpenDevicesTimeout = absl::Minutes(15);
// After drain_timeout.
constexpr absl::Duration kStopTimeout = absl::Milliseconds(1500);
constexpr absl::Duration kMaxPoll = absl::Hours(1);
// Between two tries to report READY=1 to a manager that does not read.
constexpr absl::Duration kNotifyRetry = absl::Milliseconds(500);
// Between two looks for clients, with exit_when_idle.
constexpr absl::Duration kIdlePoll = absl::Seconds(1);

enum class Interrupt { kNone, kReload, kStop, kStopIfUnused };

Interrupt AwaitInterrupt(const Events& events, absl::Duration timeout) {
  pollfd waits[] = {{events.signals, POLLIN, 0},
                    {events.parent, POLLIN, 0},
                    {events.starter, 0, 0}};
  const absl::Duration rounded = absl::Ceil(
      std::max(timeout, absl::ZeroDuration()), absl::Milliseconds(1));
  const int milliseconds = timeout == absl::InfiniteDuration()
                               ? -1
                               : static_cast<int>(absl::ToInt64Milliseconds(
                                     std::min(rounded, kMaxPoll)));
  poll(waits, 3, milliseconds);
  if (waits[1].revents != 0) {
    Log(LogSubsystem::kServer).info("the parent process has ended");
    return Interrupt::kStop;
  }
  if (waits[2].revents != 0) {
    Log(LogSubsystem::kServer)
        .info("the process that waits for the start has ended");
    return Interrupt::kStop;
  }
  signalfd_siginfo info;
  if (waits[0].revents == 0 ||
      read(events.signals, &info, sizeof(info)) != sizeof(info)) {
    return Interrupt::kNone;
  }
  switch (info.ssi_signo) {
    case SIGHUP:
      return Interrupt::kReload;
    case SIGUSR1:
      return Interrupt::kStopIfUnused;
    default:
      return Interrupt::kStop;
  }
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

// Serves reloads; true if the daemon is to stop. `server` is null while it
// starts.
bool IsStopped(const Events& events, const Flags& flags,
               absl::Duration timeout = absl::ZeroDuration(),
               Server* server = nullptr) {
  const Interrupt interrupt = AwaitInterrupt(events, timeout);
  if (interrupt == Interrupt::kReload) Reload(flags);
  if (interrupt == Interrupt::kStopIfUnused && server != nullptr &&
      server->CloseIfUnused()) {
    Log(LogSubsystem::kServer).info("no client (SIGUSR1): ending");
    return true;
  }
  return interrupt == Interrupt::kStop;
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
  const absl::Duration deadline = MonotonicNow() + wait;
  std::string denied;  // the node that was told of
  for (bool is_first = true;; is_first = false) {
    const absl::Status status =
        ProbeDevices(config, {events.signals, events.parent, events.starter});
    if (status.ok()) return Wait::kDone;
    if (absl::IsCancelled(status)) {
      if (IsStopped(events, flags)) return Wait::kStop;
      continue;
    }
    // Built without CUDA.
    if (is_any_gpu && absl::IsUnimplemented(status)) return Wait::kDone;
    const ForbiddenNode node = FindForbiddenNode();
    if (node.error == EACCES && node.path != denied) {
      denied = node.path;
      Log(LogSubsystem::kServer).error("{}", DescribeMode(denied));
    }
    if (node.error == EPERM) {
      Log(LogSubsystem::kServer)
          .critical(
              "{} is there, but forbidden: it came after the service manager "
              "had "
              "listed the devices of this service. Ending, so that it starts "
              "the "
              "service with a new list; if this comes again, see DeviceAllow= "
              "of "
              "its unit",
              node.path);
      return Wait::kFailed;
    }
    const absl::Duration left = deadline - MonotonicNow();
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
    if (IsStopped(events, flags, std::min(left, kDeviceRetry))) {
      return Wait::kStop;
    }
  }
}

// Ends the process if it is to stop, and has not started kStopTimeout later:
// what opens devices and directories may hang.
class StartGuard {
 public:
  StartGuard(const Events& events, const Flags& flags)
      : done_(eventfd(0, EFD_CLOEXEC)),
        thread_([this, &events, &flags] { Run(events, flags); }) {}
  ~StartGuard() { Finish(); }

  // Ends the guard; true if the daemon is to stop.
  bool Finish() {
    if (thread_.joinable()) {
      eventfd_write(done_.get(), 1);
      thread_.join();
    }
    return is_stopped_;
  }

 private:
  void Run(const Events& events, const Flags& flags) {
    while (!is_stopped_) {
      pollfd waits[] = {{done_.get(), POLLIN, 0},
                        {events.signals, POLLIN, 0},
                        {events.parent, POLLIN, 0},
                        {events.starter, 0, 0}};
      poll(waits, 4, -1);
      if (waits[0].revents != 0) return;
      is_stopped_ = IsStopped(events, flags);
    }
    pollfd wait = {done_.get(), POLLIN, 0};
    if (poll(&wait, 1,
             static_cast<int>(kStopTimeout / absl::Milliseconds(1))) != 0) {
      return;
    }
    Log(LogSubsystem::kServer)
        .warn("what starts has not ended within {}; ending it with the process",
              absl::FormatDuration(kStopTimeout));
    Log(LogSubsystem::kServer).flush();
    PrivateDaemon::RemoveOwn();
    std::_Exit(EXIT_SUCCESS);
  }

  const FileDescriptor done_;
  bool is_stopped_ = false;  // of the thread, until Finish
  std::thread thread_;
};

// gRPC and the C++ library abort where a thread or memory is refused. While the
// daemon starts, that is an error of the system: it is explained, and no core
// is dumped. Async-signal-safe.
[[noreturn]] void EndRefusedStart(int) {
  constexpr char kText[] =
      "datasetd: cannot start: aborted, most likely since a thread or memory "
      "was refused: raise TasksMax=, the container's limit of pids or ulimit "
      "-u "
      "for threads (a start takes about 60, and more on many cores), "
      "MemoryMax= "
      "or ulimit -v for memory\n";
  (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(kExitFailure);
}

void FeedWatchdog(Watchdog& watchdog, SelfCall& self_call, Server& server) {
  if (!watchdog.IsDue()) return;
  absl::Status status = watchdog.Check(server.ProducersProgress());
  server.PingProducers();
  status.Update(self_call.Check());
  if (status.ok()) {
    SdNotify("WATCHDOG=1");
    return;
  }
  Log(LogSubsystem::kServer)
      .critical("watchdog not fed: {}", std::string(status.message()));
}

// Drains for at most drain_timeout.
void Drain(const v1::Config& config, Watchdog& watchdog, SelfCall& self_call,
           Server& server) {
  const absl::Duration timeout = FromProto(config.drain_timeout());
  SdNotify(absl::StrCat("STOPPING=1\nSTATUS=draining\n",
                        ExtendTimeout(timeout + kProgressTimeout)));
  Log(LogSubsystem::kServer).info("draining");
  server.BeginDrain();
  const absl::Duration deadline = MonotonicNow() + timeout;
  while (true) {
    FeedWatchdog(watchdog, self_call, server);
    const absl::Duration left = deadline - MonotonicNow();
    if (server.AwaitDrained(std::min(left, watchdog.TimeToNext()))) return;
    if (left <= absl::ZeroDuration()) {
      Log(LogSubsystem::kServer)
          .warn(
              "drain_timeout passed with leases open, or with pushed datasets "
              "that the cache has not stored yet");
      return;
    }
  }
}

// Tells when a daemon with exit_when_idle is to end.
class IdleEnd {
 public:
  explicit IdleEnd(absl::Duration limit) : limit_(limit) {}

  // `is_used` tells whether the daemon is used now. Never due if `limit` is 0.
  bool IsDue(bool is_used) {
    const absl::Duration now = MonotonicNow();
    if (is_used) last_use_ = now;
    return limit_ > absl::ZeroDuration() && now - last_use_ >= limit_;
  }
  absl::Duration TimeToNext() const {
    return limit_ <= absl::ZeroDuration() ? absl::InfiniteDuration()
                                          : std::min(limit_, kIdlePoll);
  }

 private:
  const absl::Duration limit_;
  absl::Duration last_use_ = MonotonicNow();
};

}  // namespace

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

int Serve(const Flags& flags, const v1::Config& config, Events events,
          std::optional<ActivatedSocket> socket,
          PrivateDaemon* private_daemon) {
  if (private_daemon != nullptr) events.starter = private_daemon->starter();
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
  const std::terminate_handler terminate_before =
      std::set_terminate([] { EndRefusedStart(SIGABRT); });
  std::signal(SIGABRT, EndRefusedStart);
  StartGuard guard(events, flags);
  auto server = Server::Start(config, std::move(socket));
  const bool is_stopped = guard.Finish();
  if (!server.ok()) {
    Log(LogSubsystem::kServer)
        .critical("cannot start: {}", std::string(server.status().message()));
    return kExitFailure;
  }
  std::signal(SIGABRT, SIG_DFL);
  std::set_terminate(terminate_before);
  const RealClock clock;
  Watchdog watchdog(Watchdog::IntervalFromEnvironment(), &clock);
  SelfCall self_call([&server] { return (*server)->ConnectToGrpc(); }, &clock);
  IdleEnd idle_end(FromProto(config.exit_when_idle()));
  bool is_ready = false;
  bool is_told = false;  // that it is ready
  std::string progress;
  while (!is_stopped) {
    FeedWatchdog(watchdog, self_call, **server);
    if (!is_ready) {
      const absl::Status status =
          (*server)->AwaitDatasets(absl::Milliseconds(100));
      if (status.ok()) {
        is_ready = true;
        Log(LogSubsystem::kServer).info("ready");
        events.starter = -1;
        if (private_daemon != nullptr && !private_daemon->Announce()) {
          Log(LogSubsystem::kServer)
              .info("the process that waits for the start has ended");
          break;
        }
      } else if (!absl::IsDeadlineExceeded(status)) {
        Log(LogSubsystem::kServer)
            .critical("cannot load: {}", std::string(status.message()));
        // Other loads may hang, and clients may be connected.
        (*server)->BeginDrain();
        (*server)->Stop(kStopTimeout, kExitFailure);
        return kExitFailure;
      } else if (progress != status.message()) {
        // A load without progress gets no more time.
        progress = std::string(status.message());
        SdNotify(absl::StrCat("STATUS=", progress, "\n",
                              ExtendTimeout(kProgressTimeout)));
      }
    }
    if (is_ready && !is_told) is_told = SdNotify("READY=1\nSTATUS=serving");
    if (idle_end.IsDue(/*is_used=*/!is_ready || (*server)->WasUsed()) &&
        (*server)->CloseIfUnused()) {
      Log(LogSubsystem::kServer)
          .info("no client for {} (exit_when_idle): ending",
                absl::FormatDuration(FromProto(config.exit_when_idle())));
      break;
    }
    const absl::Duration wait =
        std::min({watchdog.TimeToNext(), idle_end.TimeToNext(),
                  is_told ? absl::InfiniteDuration() : kNotifyRetry});
    if (IsStopped(events, flags, is_ready ? wait : absl::ZeroDuration(),
                  server->get())) {
      break;
    }
  }
  // The next daemon of the directory starts when this one has ended.
  if (private_daemon != nullptr) (*server)->RemoveSocket();
  Drain(config, watchdog, self_call, **server);
  (*server)->Stop(kStopTimeout, EXIT_SUCCESS);
  return EXIT_SUCCESS;
}

}  // namespace datasetd
