// One named logger per subsystem, all to stderr, each with its own level.
//
//   Log(LogSubsystem::kAttach).info("lease of feed {} ended", feed_id);
//
// Thread-safe. Loggers exist from the first use to the end of the process, at
// level info until InitLogging. A line of the log is one line of output: what a
// client may have sent is escaped as base/utf8.h says.
// In systemd's journal (stderr is what JOURNAL_STREAM names) a line is an entry
// with its priority and, from ScopedLogFields, what it is about; else it is
// "2024-01-31T12:00:00.123Z info [attach] lease of ...".

#ifndef DATASETD_SERVER_LOG_LOGGING_H_
#define DATASETD_SERVER_LOG_LOGGING_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "spdlog/spdlog.h"

namespace datasetd {

enum class LogSubsystem {
  kServer,
  kService,
  kAttach,
  kProducer,
  kLoad,
};

// "server", "service", "attach", "producer", "load".
const std::vector<std::string>& LogSubsystemNames();
//   INVALID_ARGUMENT  names those there are
absl::StatusOr<LogSubsystem> LogSubsystemOf(absl::string_view name);

// "trace", "debug", "info", "warn", "error", "off".
const std::vector<std::string>& LogLevelNames();
bool IsLogLevel(absl::string_view name);

spdlog::logger& Log(LogSubsystem subsystem);

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";

// Sets every level: `level`, but for the subsystems in `levels` theirs; and
// looks at JOURNAL_STREAM anew. On an error nothing is changed.
//   INVALID_ARGUMENT  an unknown subsystem or level
absl::Status InitLogging(const std::string& level,
                         const std::map<std::string, std::string>& levels,
                         const std::string& journal_socket = kJournalSocket);

// At run time; errors as above.
absl::Status SetLogLevel(absl::string_view subsystem, absl::string_view level);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOGGING_H_
