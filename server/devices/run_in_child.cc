#include "server/devices/run_in_child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
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

enum class End { kAnswered, kTimeout, kInterrupted };

// Reads everything that the child writes.
End ReadToEnd(int fd, absl::Duration timeout, absl::Span<const int> interrupts,
              std::string* answer) {
  std::vector<pollfd> waits = {{fd, POLLIN, 0}};
  for (const int interrupt : interrupts)
    waits.push_back({interrupt, POLLIN, 0});
  const absl::Duration deadline = MonotonicNow() + timeout;
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - MonotonicNow());
    const int ready = poll(
        waits.data(), waits.size(),
        static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(left, 60000))));
    if (ready == 0 && left <= 0) return End::kTimeout;
    if (ready <= 0) continue;
    if (waits[0].revents == 0) return End::kInterrupted;
    char buffer[4096];
    const ssize_t size = read(fd, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return End::kAnswered;
    answer->append(buffer, static_cast<size_t>(size));
  }
}

}  // namespace

absl::Status RunInChild(const std::function<absl::Status()>& function,
                        absl::Duration timeout,
                        absl::Span<const int> interrupts) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  const FileDescriptor from(ends[0]);
  FileDescriptor to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) RunChild(function, to.get());
  to = FileDescriptor();
  std::string answer;
  const End end = ReadToEnd(from.get(), timeout, interrupts, &answer);
  if (end != End::kAnswered) kill(child, SIGKILL);
  int wait_status = 0;
  while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (end == End::kInterrupted) return absl::CancelledError("interrupted");
  if (end == End::kTimeout) {
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
