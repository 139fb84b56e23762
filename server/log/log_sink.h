// Where the lines of the log go: standard error, or systemd's journal in its
// native form, which has fields to search by:
//
//   journalctl -u datasetd DATASET=cifar10-train
//
// Thread-safe.

#ifndef DATASETD_SERVER_LOG_LOG_SINK_H_
#define DATASETD_SERVER_LOG_LOG_SINK_H_

#include <sys/un.h>

#include <mutex>
#include <string>

#include "base/file_descriptor.h"
#include "spdlog/sinks/base_sink.h"

namespace datasetd {

class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // To standard error.
  LogSink() { LogToStderr(); }

  // For people.
  void LogToStderr();
  // `socket_path` is the journal's. REQUIRES: standard error is the journal,
  // too; it gets, with its priority, what the socket does not take.
  void LogToJournal(const std::string& socket_path);

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override;

 private:
  bool SendToJournal(const spdlog::details::log_msg& message) const;

  FileDescriptor journal_;  // none: standard error
  sockaddr_un address_ = {};
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOG_SINK_H_
