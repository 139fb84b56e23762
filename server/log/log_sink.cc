#include "server/log/log_sink.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/log/log_fields.h"
#include "server/log/log_line.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {
namespace {

// Returns EAGAIN if the reader is behind, even in the middle of a line.
int WriteToStderr(absl::string_view line) {
  while (!line.empty()) {
    // A pipe that is ready takes PIPE_BUF bytes.
    pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, 0) == 0) return EAGAIN;
    const ssize_t count =
        write(STDERR_FILENO, line.data(),
              std::min(line.size(), static_cast<size_t>(PIPE_BUF)));
    if (count < 0 && errno != EINTR) return errno;
    line.remove_prefix(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  return 0;
}

}  // namespace

void LogSink::LogToStderr() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_journal_ = false;
  journal_ = FileDescriptor();
}

void LogSink::LogToJournal(const std::string& socket_path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_journal_ = true;
  journal_ = FileDescriptor();
  address_ = {};
  address_.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address_.sun_path)) return;
  std::memcpy(address_.sun_path, socket_path.data(), socket_path.size());
  journal_ = FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::details::log_msg told = message;
  std::string text;
  if (num_lost_ > 0) {
    text.assign(message.payload.data(), message.payload.size());
    absl::StrAppend(&text, " (", num_lost_,
                    " lines before were lost: their reader had no room)");
    told.payload = text;
  }
  int error = SendToJournal(told);
  if (error != 0 && error != EAGAIN) {
    error = WriteToStderr(FormatLogLine(told, for_journal_));
  }
  num_lost_ = error == EAGAIN ? num_lost_ + 1 : 0;
}

// Not connected, since the journal may restart.
int LogSink::SendToJournal(const spdlog::details::log_msg& message) const {
  if (journal_.get() < 0) return EBADF;
  const std::string entry =
      FormatJournalEntry(message, ScopedLogFields::Current());
  return sendto(journal_.get(), entry.data(), entry.size(),
                MSG_NOSIGNAL | MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&address_),
                sizeof(address_)) < 0
             ? errno
             : 0;
}

}  // namespace datasetd
