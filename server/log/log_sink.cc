#include "server/log/log_sink.h"

#include <sys/socket.h>

#include <cstdio>
#include <cstring>
#include <memory>

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
  if (SendToJournal(message)) return;
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Not connected, since the journal may restart.
bool LogSink::SendToJournal(const spdlog::details::log_msg& message) const {
  if (journal_.get() < 0) return false;
  const std::string entry =
      FormatJournalEntry(message, ScopedLogFields::Current());
  return sendto(journal_.get(), entry.data(), entry.size(), MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&address_),
                sizeof(address_)) == static_cast<ssize_t>(entry.size());
}

void LogSink::flush_() { std::fflush(stderr); }

}  // namespace datasetd
