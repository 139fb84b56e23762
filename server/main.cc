// The daemon's main program: flags, sockets, signals. Exit codes are those of
// exit_codes.h.

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/file_descriptor.h"
#include "base/standard_streams.h"
#include "server/exit_codes.h"
#include "server/flags.h"
#include "server/lifecycle.h"
#include "server/log/logging.h"
#include "server/systemd/socket_activation.h"

namespace datasetd {
namespace {

// A feed uses six descriptors.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Main(int argc, char** argv) {
  ReserveStandardStreams();
  // Debian's Abseil searches for lock cycles at every lock by default; the
  // ThreadSanitizer tests do this instead.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  Flags flags;
  if (const auto code = ParseFlags(argc, argv, flags)) return *code;
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
  if (flags.exit_with_parent.has_value()) {
    const pid_t pid =
        *flags.exit_with_parent > 0 ? *flags.exit_with_parent : getppid();
    parent = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!parent.has_value() && pid == 0) {
      Log(LogSubsystem::kServer)
          .critical(
              "--exit_with_parent: the parent is outside of this PID namespace "
              "and cannot be watched: leave the flag out");
      return kExitFailure;
    }
    if (!parent.has_value() && errno == ESRCH) {
      Log(LogSubsystem::kServer).info("the parent process has ended");
      return 0;
    }
    if (!parent.has_value()) {
      Log(LogSubsystem::kServer)
          .critical("--exit_with_parent: process {} cannot be watched: {}", pid,
                    std::strerror(errno));
      return kExitFailure;
    }
  }
  return Serve(flags, *config, {signals.get(), parent.get()},
               *std::move(sockets));
}

}  // namespace
}  // namespace datasetd

int main(int argc, char** argv) { return datasetd::Main(argc, argv); }
