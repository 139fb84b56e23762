#include "server/log/logging.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "server/log/log_sink.h"

namespace datasetd {
namespace {

constexpr size_t kNumSubsystems = 5;

struct Level {
  const char* name;
  spdlog::level::level_enum value;
};
constexpr Level kLevels[] = {
    {"trace", spdlog::level::trace}, {"debug", spdlog::level::debug},
    {"info", spdlog::level::info},   {"warn", spdlog::level::warn},
    {"error", spdlog::level::err},   {"off", spdlog::level::off},
};

struct Loggers {
  std::shared_ptr<LogSink> sink;
  std::array<std::shared_ptr<spdlog::logger>, kNumSubsystems> loggers;
};

// JOURNAL_STREAM is "device:inode" of the journal's socket; if stderr was
// redirected since, they differ.
bool IsStderrTheJournal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat status;
  return stream != nullptr && fstat(STDERR_FILENO, &status) == 0 &&
         absl::StrCat(status.st_dev, ":", status.st_ino) == stream;
}

void ChooseOutput(const std::string& journal_socket, LogSink* sink) {
  if (IsStderrTheJournal()) {
    sink->LogToJournal(journal_socket);
  } else {
    sink->LogToStderr();
  }
}

// Never destroyed: threads may log until the process ends.
Loggers& GetLoggers() {
  static Loggers* const loggers = [] {
    auto* made = new Loggers;
    made->sink = std::make_shared<LogSink>();
    ChooseOutput(kJournalSocket, made->sink.get());
    for (size_t i = 0; i < kNumSubsystems; ++i) {
      made->loggers[i] =
          std::make_shared<spdlog::logger>(LogSubsystemNames()[i], made->sink);
      made->loggers[i]->set_level(spdlog::level::info);
    }
    return made;
  }();
  return *loggers;
}

absl::StatusOr<spdlog::level::level_enum> ParseLevel(absl::string_view name) {
  for (const Level& level : kLevels) {
    if (name == level.name) return level.value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown log level '", absl::Utf8SafeCHexEscape(name),
                   "'; there are: ", absl::StrJoin(LogLevelNames(), ", ")));
}

}  // namespace

const std::vector<std::string>& LogSubsystemNames() {
  // In the order of LogSubsystem.
  static const auto* const names = new std::vector<std::string>{
      "server", "service", "attach", "producer", "load"};
  return *names;
}

absl::StatusOr<LogSubsystem> LogSubsystemOf(absl::string_view name) {
  const std::vector<std::string>& names = LogSubsystemNames();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) {
    return static_cast<LogSubsystem>(found - names.begin());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown log subsystem '", absl::Utf8SafeCHexEscape(name),
                   "'; there are: ", absl::StrJoin(names, ", ")));
}

const std::vector<std::string>& LogLevelNames() {
  static const auto* const names = [] {
    auto* made = new std::vector<std::string>;
    for (const Level& level : kLevels) made->push_back(level.name);
    return made;
  }();
  return *names;
}

bool IsLogLevel(absl::string_view name) { return ParseLevel(name).ok(); }

spdlog::logger& Log(LogSubsystem subsystem) {
  return *GetLoggers().loggers[static_cast<size_t>(subsystem)];
}

absl::Status InitLogging(const std::string& level,
                         const std::map<std::string, std::string>& levels,
                         const std::string& journal_socket) {
  DATASETD_ASSIGN_OR_RETURN(const auto default_level, ParseLevel(level));
  std::array<spdlog::level::level_enum, kNumSubsystems> values;
  values.fill(default_level);
  for (const auto& [name, subsystem_level] : levels) {
    DATASETD_ASSIGN_OR_RETURN(const LogSubsystem subsystem,
                              LogSubsystemOf(name));
    DATASETD_ASSIGN_OR_RETURN(values[static_cast<size_t>(subsystem)],
                              ParseLevel(subsystem_level));
  }
  Loggers& loggers = GetLoggers();
  ChooseOutput(journal_socket, loggers.sink.get());
  for (size_t i = 0; i < kNumSubsystems; ++i) {
    loggers.loggers[i]->set_level(values[i]);
  }
  return absl::OkStatus();
}

}  // namespace datasetd
