#include "server/devices/run_in_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file_descriptor.h"

namespace datasetd {
namespace {

// A pipe accepts this much in one write.
constexpr size_t kMaxMessageBytes = 4000;

[[noreturn]] void RunChild(const std::function<absl::Status()>& function,
                           int fd) {
  const absl::Status status = function();
  const std::string answer =
      static_cast<char>(status.code()) +
      std::string(status.message()).substr(0, kMaxMessageBytes);
  const ssize_t written = write(fd, answer.data(), answer.size());
  _exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
}

// Reads everything the child wrote; false after the timeout.
bool ReadToEnd(int fd, absl::Duration timeout, std::string* answer) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd wait = {fd, POLLIN, 0};
    const int ready = poll(
        &wait, 1,
        static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(left, 60000))));
    if (ready == 0 && left <= 0) return false;
    if (ready <= 0) continue;
    char buffer[4096];
    const ssize_t size = read(fd, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    answer->append(buffer, static_cast<size_t>(size));
  }
}

}  // namespace

absl::Status RunInChild(const std::function<absl::Status()>& function,
                        absl::Duration timeout) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  const FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) RunChild(function, to.get());
  to = FileDescriptor();
  std::string answer;
  const bool is_in_time = ReadToEnd(from.get(), timeout, &answer);
  if (!is_in_time) kill(child, SIGKILL);
  int wait_status = 0;
  while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (!is_in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("no answer within ", absl::FormatDuration(timeout)));
  }
  if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0 ||
      answer.empty()) {
    return absl::InternalError(
        WIFSIGNALED(wait_status)
            ? absl::StrCat("the child died of signal ", WTERMSIG(wait_status))
            : absl::StrCat("the child ended with ", WEXITSTATUS(wait_status)));
  }
  return absl::Status(static_cast<absl::StatusCode>(answer[0]),
                      answer.substr(1));
}

}  // namespace datasetd
