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
#include <optional>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/file_descriptor.h"
#include "base/standard_streams.h"
#include "server/exit_codes.h"
#include "server/flags.h"
#include "server/lifecycle.h"
#include "server/log/logging.h"
#include "server/private_daemon.h"
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

// Opens a pidfd of the process with whose end the daemon ends, if there is one.
// Returns an exit code if that cannot be watched.
std::optional<int> OpenParent(const Flags& flags, FileDescriptor* parent) {
  if (!flags.exit_with_parent.has_value()) return std::nullopt;
  const pid_t pid =
      *flags.exit_with_parent > 0 ? *flags.exit_with_parent : getppid();
  if (pid == 0) {
    std::fprintf(stderr,
                 "datasetd: --exit_with_parent: the parent is outside of this "
                 "PID namespace and cannot be watched: leave the flag out\n");
    return kExitFailure;
  }
  parent->Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (parent->has_value()) return std::nullopt;
  if (errno == ESRCH) {
    std::fprintf(stderr, "datasetd: the parent process has ended\n");
    // Of a private daemon 0 says that one serves.
    return flags.private_directory.empty() ? 0 : kExitFailure;
  }
  std::fprintf(stderr,
               "datasetd: --exit_with_parent: process %d cannot be watched: "
               "%s\n",
               pid, std::strerror(errno));
  return kExitFailure;
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
  const bool is_private = !flags.private_directory.empty();
  if (is_private) PrivateDaemon::CloseInherited();
  FileDescriptor parent;
  if (const auto code = OpenParent(flags, &parent)) return *code;
  std::optional<PrivateDaemon> private_daemon;
  if (is_private) {
    const auto code = PrivateDaemon::Start(flags.private_directory,
                                           flags.log_path, &private_daemon);
    if (code.has_value()) return *code;
  }
  StartLogging(*config);
  auto socket = TakeActivatedSocket();
  absl::Status status = socket.status();
  if (status.ok() && socket->has_value()) {
    status = CheckPath(**socket, config->socket_path());
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
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  // The reader of the log may be gone.
  std::signal(SIGPIPE, SIG_IGN);
  // Exceeding the file size limit is an error like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const FileDescriptor signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  const int code =
      Serve(flags, *config, {signals.get(), parent.get()}, *std::move(socket),
            private_daemon ? &*private_daemon : nullptr);
  PrivateDaemon::RemoveOwn();
  return code;
}

}  // namespace
}  // namespace datasetd

int main(int argc, char** argv) { return datasetd::Main(argc, argv); }
