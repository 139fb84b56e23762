#include "server/log/log_formatter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/utf8.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {
namespace {

absl::string_view LevelName(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
      return "trace";
    case spdlog::level::debug:
      return "debug";
    case spdlog::level::info:
      return "info";
    case spdlog::level::warn:
      return "warn";
    default:
      return "error";
  }
}

}  // namespace

int JournalPriority(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return 2;
    case spdlog::level::err:
      return 3;
    case spdlog::level::warn:
      return 4;
    case spdlog::level::info:
      return 6;
    default:
      return 7;
  }
}

void LogFormatter::format(const spdlog::details::log_msg& message,
                          spdlog::memory_buf_t& line) {
  std::string text;
  if (for_journal_) {
    absl::StrAppend(&text, "<", JournalPriority(message.level), ">");
  } else {
    absl::StrAppend(
        &text,
        absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(message.time),
                         absl::UTCTimeZone()),
        " ", LevelName(message.level), " ");
  }
  absl::StrAppend(
      &text, "[",
      absl::string_view(message.logger_name.data(), message.logger_name.size()),
      "] ");
  AppendPrintable({message.payload.data(), message.payload.size()}, &text);
  text.push_back('\n');
  line.append(text.data(), text.data() + text.size());
}

std::unique_ptr<spdlog::formatter> LogFormatter::clone() const {
  return std::make_unique<LogFormatter>(for_journal_);
}

}  // namespace datasetd
