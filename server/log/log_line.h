// The formats of a log line; see logging.h. Text is escaped as in base/utf8.h,
// so that none can forge a line or a field.

#ifndef DATASETD_SERVER_LOG_LOG_LINE_H_
#define DATASETD_SERVER_LOG_LOG_LINE_H_

#include <string>

#include "server/log/log_fields.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {

// For standard error: with time and level or, for a journal that reads it, with
// the priority as in sd-daemon(3).
std::string FormatLogLine(const spdlog::details::log_msg& message,
                          bool for_journal);

// A datagram in systemd's native journal format: lines NAME=value, MESSAGE
// ("[attach] ..."), PRIORITY, SYSLOG_IDENTIFIER, SUBSYSTEM and the `fields`
// that are set.
std::string FormatJournalEntry(const spdlog::details::log_msg& message,
                               const LogFields& fields);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOG_LINE_H_
