#include "client/ctl/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/file_descriptor.h"
#include "base/status_macros.h"
#include "client/ctl/child_process.h"

namespace datasetd::ctl {
namespace {

constexpr absl::Duration kStopTimeout = absl::Seconds(10);
// Time in which a daemon that ends has removed its sockets.
constexpr absl::Duration kAnswerTimeout = absl::Milliseconds(250);
constexpr size_t kTailBytes = 2000;

bool IsProgram(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         access(path.c_str(), X_OK) == 0;
}

client::GuardedFd OpenProcess(pid_t pid) {
  return client::GuardedFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// Waits until one of the descriptors is ready; returns its index, or -1 after
// `timeout`. Leaves out those that are -1.
int AwaitOneOf(absl::Span<const int> descriptors, absl::Duration timeout) {
  std::vector<pollfd> waits;
  for (const int fd : descriptors) waits.push_back({fd, POLLIN, 0});
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(std::clamp(
        deadline - absl::Now(), absl::ZeroDuration(), absl::Hours(1)));
    const int num_ready =
        poll(waits.data(), waits.size(), static_cast<int>(left));
    if (num_ready == 0 && absl::Now() >= deadline) return -1;
    for (size_t i = 0; num_ready > 0 && i < waits.size(); ++i) {
      if (waits[i].revents != 0) return static_cast<int>(i);
    }
  }
}

// Returns the end of a file; empty if there is nothing to read.
std::string TailOf(int fd) {
  struct stat status = {};
  char text[kTailBytes];
  if (fstat(fd, &status) != 0) return "";
  const ssize_t size =
      pread(fd, text, sizeof(text),
            std::max<off_t>(0, status.st_size - off_t{kTailBytes}));
  return std::string(absl::StripAsciiWhitespace(absl::string_view(
      text, static_cast<size_t>(std::max<ssize_t>(0, size)))));
}

}  // namespace

absl::StatusOr<std::string> FindDaemon(const std::string& named) {
  std::vector<std::string> candidates;
  const char* const variable = getenv("DATASETD_DAEMON");
  if (!named.empty()) {
    candidates.push_back(named);
  } else if (variable != nullptr && *variable != '\0') {
    candidates.push_back(variable);
  } else {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) {
      const auto beside = self.parent_path();
      candidates.push_back((beside / "datasetd").string());
      candidates.push_back(
          (beside / "../../server/datasetd").lexically_normal().string());
    }
    const char* const path = getenv("PATH");
    for (const absl::string_view directory :
         absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty())) {
      candidates.push_back(absl::StrCat(directory, "/datasetd"));
    }
  }
  for (const std::string& candidate : candidates) {
    if (IsProgram(candidate)) {
      return std::filesystem::absolute(candidate).string();
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "no datasetd program at ", absl::StrJoin(candidates, ", "),
      ": build it (bazel build //server:datasetd), or name it by --daemon or "
      "$DATASETD_DAEMON"));
}

absl::StatusOr<PrivateDaemon> PrivateDaemon::Start(
    const Options& options, absl::Span<const int> interrupts) {
  PrivateDaemon daemon;
  daemon.directory_ = options.directory;
  // Not guarded: the child has it, too.
  const FileDescriptor output(memfd_create("datasetd-start", MFD_CLOEXEC));
  ChildProcess::Options child;
  child.arguments = {options.program, "--private=" + options.directory};
  child.arguments.insert(child.arguments.end(), options.arguments.begin(),
                         options.arguments.end());
  child.output_fd = output.get();
  DATASETD_ASSIGN_OR_RETURN(const pid_t pid, ChildProcess::Start(child));
  const client::GuardedFd process = OpenProcess(pid);
  std::vector<int> waits = {process.get()};
  waits.insert(waits.end(), interrupts.begin(), interrupts.end());
  const int ready = AwaitOneOf(waits, options.timeout);
  std::string problem;
  if (ready < 0) problem = daemon.LogTail();
  // The daemon, which is not its child any more, then ends by itself.
  if (ready != 0) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (ready < 0) {
    return absl::DeadlineExceededError(
        absl::StrCat(options.program, " did not serve within ",
                     absl::FormatDuration(options.timeout), ": ", problem));
  }
  if (ready > 0) {
    return absl::CancelledError("interrupted while the daemon started");
  }
  const std::string text = TailOf(output.get());
  pid_t started = 0;
  if (ExitCodeOfWaitStatus(status) != 0 || !absl::SimpleAtoi(text, &started)) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.program, " ", DescribeWaitStatus(status), ": ",
                     text.empty() ? "it printed nothing" : text));
  }
  if (started > 0) daemon.process_ = OpenProcess(started);
  return daemon;
}

void PrivateDaemon::Signal(int number) const {
  if (process() >= 0) {
    syscall(SYS_pidfd_send_signal, process(), number, nullptr, 0);
  }
}

bool PrivateDaemon::AwaitEnd(absl::Duration timeout) const {
  return AwaitOneOf({process()}, timeout) == 0;
}

void PrivateDaemon::Stop() {
  if (process() < 0) return;
  Signal(SIGTERM);
  if (!AwaitEnd(kStopTimeout)) {
    Signal(SIGKILL);
    AwaitEnd(kStopTimeout);
  }
  // If this process is init, the daemon is its child.
  waitid(P_PIDFD, static_cast<id_t>(process()), nullptr, WEXITED | WNOHANG);
  process_.Reset();
}

void PrivateDaemon::StopIfUnused() {
  if (process() < 0) return;
  Signal(SIGUSR1);
  // It removes its sockets at once if it ends.
  if (!AwaitEnd(kAnswerTimeout) &&
      access((directory_ + "/datasetd.sock").c_str(), F_OK) != 0) {
    AwaitEnd(kStopTimeout);
  }
}

std::string PrivateDaemon::LogTail() const {
  const client::GuardedFd file(open((directory_ + "/datasetd.log").c_str(),
                                    O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  const std::string tail = TailOf(file.get());
  return tail.empty() ? "it logged nothing" : tail;
}

}  // namespace datasetd::ctl
