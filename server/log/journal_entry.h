// Formats a log line as a datagram in systemd's native journal format.

#ifndef DATASETD_SERVER_LOG_JOURNAL_ENTRY_H_
#define DATASETD_SERVER_LOG_JOURNAL_ENTRY_H_

#include <string>

#include "server/log/log_fields.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {

// Lines NAME=value: MESSAGE ("[attach] ..."), PRIORITY, SYSLOG_IDENTIFIER,
// SUBSYSTEM and the `fields` that are set. Values are escaped, so that none can
// end its line.
std::string FormatJournalEntry(const spdlog::details::log_msg& message,
                               const LogFields& fields);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_JOURNAL_ENTRY_H_
