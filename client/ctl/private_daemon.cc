#include "client/ctl/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/connection/guarded_fd.h"
#include "client/ctl/child_process.h"

namespace datasetd::ctl {
namespace {

constexpr absl::Duration kStopTimeout = absl::Seconds(10);
constexpr size_t kLogTailBytes = 2000;

bool IsProgram(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         access(path.c_str(), X_OK) == 0;
}

absl::StatusOr<client::GuardedFd> BindNotices(const std::string& path) {
  client::GuardedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is too long for a Unix socket: set TMPDIR to a shorter one"));
  }
  memcpy(name.sun_path, path.data(), path.size());
  if (!fd.is_valid() || bind(fd.get(), reinterpret_cast<const sockaddr*>(&name),
                             sizeof(name)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("bind ", path));
  }
  return fd;
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

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(
    const Options& options, int interrupt) {
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon());
  DATASETD_ASSIGN_OR_RETURN(daemon->directory_, TemporaryDirectory::Create());
  const std::string& directory = daemon->directory_->path();
  daemon->program_ = options.program;
  daemon->log_path_ =
      options.log_path.empty() ? directory + "/datasetd.log" : options.log_path;
  const std::string notify_path = directory + "/notify.sock";
  auto notices = BindNotices(notify_path);
  if (!notices.ok()) return notices.status();

  ChildProcess::Options child;
  child.arguments = {options.program, "--socket_path=" + daemon->address(),
                     absl::StrCat("--exit_with_parent=", getpid())};
  child.arguments.insert(child.arguments.end(), options.arguments.begin(),
                         options.arguments.end());
  child.environment = {{"NOTIFY_SOCKET", notify_path}};
  child.output_path = daemon->log_path_;
  // Ctrl-C must only reach the command; the daemon ends after it.
  child.new_session = true;
  auto pid = ChildProcess::Start(child);
  if (!pid.ok()) return pid.status();
  daemon->pid_ = *pid;
  const absl::Status ready =
      daemon->AwaitReady(notices->get(), interrupt, options.timeout);
  if (!ready.ok()) return ready;
  return daemon;
}

PrivateDaemon::~PrivateDaemon() { Stop(); }

absl::Status PrivateDaemon::AwaitReady(int notices, int interrupt,
                                       absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const client::GuardedFd process(
      static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!process.is_valid()) return absl::ErrnoToStatus(errno, "pidfd_open");
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat(program_, " did not serve within ",
                       absl::FormatDuration(timeout), ": ", LogTail()));
    }
    pollfd waits[] = {{notices, POLLIN, 0},
                      {process.get(), POLLIN, 0},
                      {interrupt, POLLIN, 0}};
    poll(waits, 3, static_cast<int>(absl::ToInt64Milliseconds(left) + 1));
    if (waits[0].revents != 0) {
      char text[4096];
      const ssize_t size = recv(notices, text, sizeof(text), MSG_DONTWAIT);
      if (size > 0) {
        for (const absl::string_view line : absl::StrSplit(
                 absl::string_view(text, static_cast<size_t>(size)), '\n')) {
          if (line == "READY=1") return absl::OkStatus();
        }
      }
    } else if (waits[1].revents != 0) {
      return absl::FailedPreconditionError(Ending());
    } else if (waits[2].revents != 0) {
      return absl::CancelledError("interrupted while the daemon started");
    }
  }
}

std::string PrivateDaemon::Ending() {
  if (!has_ended_ && waitpid(pid_, &wait_status_, WNOHANG) == pid_) {
    has_ended_ = true;
  }
  if (!has_ended_) return "";
  return absl::StrCat(program_, " ", DescribeWaitStatus(wait_status_), ": ",
                      LogTail());
}

void PrivateDaemon::Stop() {
  if (pid_ < 0 || has_ended_) return;
  const client::GuardedFd process(
      static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  kill(pid_, SIGTERM);
  const absl::Time deadline = absl::Now() + kStopTimeout;
  pollfd wait = {process.get(), POLLIN, 0};
  int num_ready = 0;
  do {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    num_ready = poll(&wait, 1, static_cast<int>(left < 0 ? 0 : left));
  } while (num_ready < 0 && errno == EINTR);
  if (num_ready <= 0) kill(pid_, SIGKILL);
  while (waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
  has_ended_ = true;
}

std::string PrivateDaemon::LogTail() const {
  // A read of a pipe or a terminal would block.
  const client::GuardedFd file(
      open(log_path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status = {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::StrCat("see ", log_path_);
  }
  char text[kLogTailBytes];
  const ssize_t size =
      pread(file.get(), text, sizeof(text),
            std::max<off_t>(0, status.st_size - off_t{kLogTailBytes}));
  const absl::string_view tail = absl::StripAsciiWhitespace(
      absl::string_view(text, static_cast<size_t>(std::max<ssize_t>(0, size))));
  return tail.empty() ? "it logged nothing" : std::string(tail);
}

}  // namespace datasetd::ctl
