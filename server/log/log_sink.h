// The destination of log lines: standard error, or systemd's journal in its
// native format, which has fields to search by:
//
//   journalctl -u datasetd DATASET=cifar10-train
//
// Lines that the journal, or the reader of a pipe, has no room for are lost,
// and counted in the next one: threads log while they hold locks that all users
// need, so they do not wait.
// Thread-safe.

#ifndef DATASETD_SERVER_LOG_LOG_SINK_H_
#define DATASETD_SERVER_LOG_LOG_SINK_H_

#include <sys/un.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "base/file_descriptor.h"
#include "spdlog/sinks/base_sink.h"

namespace datasetd {

class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // Writes plain lines to standard error, as at first.
  void LogToStderr();
  // Writes to the journal at `socket_path`. REQUIRES: standard error is
  // connected to the journal as well; it gets the lines, with priority, that
  // the socket refuses.
  void LogToJournal(const std::string& socket_path);

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  // Returns the error, or 0.
  int SendToJournal(const spdlog::details::log_msg& message) const;

  bool for_journal_ = false;
  FileDescriptor journal_;  // empty: standard error
  sockaddr_un address_ = {};
  uint64_t num_lost_ = 0;  // lines since the last one that was written
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOG_SINK_H_
