// A line of the log as a datagram for systemd's journal, in its native form.

#ifndef DATASETD_SERVER_LOG_JOURNAL_ENTRY_H_
#define DATASETD_SERVER_LOG_JOURNAL_ENTRY_H_

#include <string>

#include "server/log/log_fields.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {

// Lines NAME=value: MESSAGE ("[attach] ..."), PRIORITY, SYSLOG_IDENTIFIER,
// SUBSYSTEM and those of `fields` that are set. No value can end its line.
std::string FormatJournalEntry(const spdlog::details::log_msg& message,
                               const LogFields& fields);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_JOURNAL_ENTRY_H_
