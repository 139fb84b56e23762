#include "server/log/log_sink.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/log/journal_entry.h"
#include "server/log/log_fields.h"
#include "server/log/log_formatter.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {

void LogSink::LogToStderr() {
  const std::lock_guard<std::mutex> lock(mutex_);
  formatter_ = std::make_unique<LogFormatter>(false);
  journal_ = FileDescriptor();
}

void LogSink::LogToJournal(const std::string& socket_path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  formatter_ = std::make_unique<LogFormatter>(true);
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
                    " lines before were lost: the journal had no room)");
    told.payload = text;
  }
  const int error = SendToJournal(told);
  if (error == EAGAIN) {
    ++num_lost_;
    return;
  }
  num_lost_ = 0;
  if (error == 0) return;
  spdlog::memory_buf_t line;
  formatter_->format(told, line);
  std::fwrite(line.data(), 1, line.size(), stderr);
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

void LogSink::flush_() { std::fflush(stderr); }

}  // namespace datasetd
