// One named logger per subsystem, each with its own level.
//
//   Log(LogSubsystem::kAttach).info("lease of feed {} ended", feed_id);
//
// Thread-safe. Loggers exist from first use to the end of the process, at level
// info until InitLogging. Each message is one line of output: text that may
// come from a client is escaped as in base/utf8.h. If stderr is the systemd
// journal (named by JOURNAL_STREAM), a line is an entry with its priority and
// the fields of ScopedLogFields; otherwise it goes to stderr as
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
//   INVALID_ARGUMENT  unknown; names the valid ones
absl::StatusOr<LogSubsystem> LogSubsystemOf(absl::string_view name);

// "trace", "debug", "info", "warn", "error", "off".
const std::vector<std::string>& LogLevelNames();
bool IsLogLevel(absl::string_view name);

spdlog::logger& Log(LogSubsystem subsystem);

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";

// Sets the level of all subsystems to `level`, or to their value in `levels`,
// and evaluates JOURNAL_STREAM again. Changes nothing on error.
//   INVALID_ARGUMENT  an unknown subsystem or level
absl::Status InitLogging(const std::string& level,
                         const std::map<std::string, std::string>& levels,
                         const std::string& journal_socket = kJournalSocket);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOGGING_H_
