#include "server/log/log_line.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/utf8.h"

namespace datasetd {
namespace {

struct Severity {
  const char* name;
  int priority;  // as in sd-daemon(3)
};
// By spdlog's number: trace, debug, info, warn, err, critical.
constexpr Severity kSeverities[] = {{"trace", 7}, {"debug", 7}, {"info", 6},
                                    {"warn", 4},  {"error", 3}, {"error", 2}};
static_assert(spdlog::level::trace == 0 && spdlog::level::critical == 5);

// Appends "[attach] " and the text.
void AppendText(const spdlog::details::log_msg& message, std::string* to) {
  absl::StrAppend(
      to, "[",
      absl::string_view(message.logger_name.data(), message.logger_name.size()),
      "] ");
  AppendPrintable({message.payload.data(), message.payload.size()}, to);
}

}  // namespace

std::string FormatLogLine(const spdlog::details::log_msg& message,
                          bool for_journal) {
  const Severity& severity = kSeverities[message.level];
  std::string line =
      for_journal
          ? absl::StrCat("<", severity.priority, ">")
          : absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                                          absl::FromChrono(message.time),
                                          absl::UTCTimeZone()),
                         " ", severity.name, " ");
  AppendText(message, &line);
  line.push_back('\n');
  return line;
}

std::string FormatJournalEntry(const spdlog::details::log_msg& message,
                               const LogFields& fields) {
  std::string entry = "MESSAGE=";
  AppendText(message, &entry);
  absl::StrAppend(
      &entry, "\nPRIORITY=", kSeverities[message.level].priority,
      "\nSYSLOG_IDENTIFIER=datasetd\nSUBSYSTEM=",
      absl::string_view(message.logger_name.data(), message.logger_name.size()),
      "\n");
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
