#include "server/log/journal_entry.h"

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "server/log/log_formatter.h"

namespace datasetd {

std::string FormatJournalEntry(const spdlog::details::log_msg& message,
                               const LogFields& fields) {
  const std::string subsystem(message.logger_name.data(),
                              message.logger_name.size());
  std::string entry = absl::StrCat("MESSAGE=[", subsystem, "] ");
  AppendPrintable({message.payload.data(), message.payload.size()}, &entry);
  absl::StrAppend(&entry, "\nPRIORITY=", JournalPriority(message.level),
                  "\nSYSLOG_IDENTIFIER=datasetd\nSUBSYSTEM=", subsystem, "\n");
  if (!fields.dataset.empty()) {
    entry.append("DATASET=");
    AppendPrintable(fields.dataset, &entry);
    entry.push_back('\n');
  }
  if (fields.feed) absl::StrAppend(&entry, "FEED=", *fields.feed, "\n");
  if (fields.uid) absl::StrAppend(&entry, "UID=", *fields.uid, "\n");
  if (fields.pid) absl::StrAppend(&entry, "PID=", *fields.pid, "\n");
  return entry;
}

}  // namespace datasetd
