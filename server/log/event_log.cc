#include "server/log/event_log.h"

#include <sys/types.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "server/log/log_fields.h"
#include "server/log/log_limiter.h"
#include "server/log/logging.h"

namespace datasetd {
namespace {

// Names, paths and errors may be long.
constexpr size_t kMaxLineBytes = 4096;

// Never destroyed: threads may log until the process ends.
LogLimiter& Limiter() {
  static LogLimiter* const limiter = new LogLimiter({}, new RealClock);
  return *limiter;
}

struct Event {
  LogSubsystem subsystem;
  spdlog::level::level_enum level;
  uint32_t uid;  // the user whose allowance is charged
  absl::string_view kind;
};

void Write(const Event& event, absl::FunctionRef<LogFields()> fields,
           absl::FunctionRef<std::string()> text) {
  spdlog::logger& log = Log(event.subsystem);
  if (!log.should_log(event.level)) return;
  const LogLimiter::Verdict verdict = Limiter().Admit(event.uid, event.kind);
  if (!verdict.is_admitted) return;
  std::string line = text();
  if (line.size() > kMaxLineBytes) {
    line.resize(kMaxLineBytes);
    line += "...";
  }
  if (verdict.num_left_out > 0) {
    absl::StrAppend(&line, " (", verdict.num_left_out,
                    " more like it were left out before)");
  }
  Limiter().Charge(event.uid, line.size());
  const ScopedLogFields scope(fields());
  log.log(event.level, "{}", line);
}

void WriteOfClient(LogSubsystem subsystem, const char* event, uint32_t uid,
                   int32_t pid, absl::FunctionRef<std::string()> detail) {
  Write(
      {subsystem, spdlog::level::warn, uid, event},
      [&] { return LogFields{.uid = uid, .pid = pid}; },
      [&] {
        return absl::StrCat(event, ": uid=", uid, " pid=", pid, ": ", detail());
      });
}

// The user charged for an event of a dataset: the owner, if the daemon itself
// acted.
uint32_t AnswerableUid(const DatasetInfo& info, const Caller& caller) {
  return caller.session_id == 0 ? info.owner.uid : caller.uid;
}

}  // namespace

void LogDatasetEvent(const char* event, const DatasetInfo& info,
                     const Caller& caller) {
  const auto fields = [&] {
    return LogFields{
        .dataset = info.spec->name(), .uid = caller.uid, .pid = caller.pid};
  };
  const uint32_t uid = AnswerableUid(info, caller);
  if (info.state == DatasetState::kFailed) {
    Write({LogSubsystem::kLoad, spdlog::level::err, uid, event}, fields, [&] {
      return absl::StrCat("dataset=", info.spec->name(), " ", event,
                          ": uid=", caller.uid, " pid=", caller.pid, ": ",
                          info.error.message());
    });
    return;
  }
  Write({LogSubsystem::kLoad, spdlog::level::info, uid, event}, fields, [&] {
    return absl::StrCat("dataset=", info.spec->name(), " ", event,
                        ": uid=", caller.uid, " pid=", caller.pid,
                        " samples=", info.dataset.num_samples(),
                        " bytes=", info.dataset.resident_bytes(),
                        " device=", info.dataset.device());
  });
}

void LogFeedEvent(const char* event, const FeedInfo& info) {
  Write(
      {LogSubsystem::kProducer, spdlog::level::info, info.owner.uid, event},
      [&] {
        return LogFields{.dataset = info.feed.dataset(),
                         .feed = info.feed.feed_id(),
                         .uid = info.owner.uid,
                         .pid = info.owner.pid};
      },
      [&] {
        return absl::StrCat(
            "feed=", info.feed.feed_id(), " dataset=", info.feed.dataset(), " ",
            event, ": uid=", info.owner.uid, " pid=", info.owner.pid,
            " slab_bytes=", info.feed.slab_bytes(),
            // Not known of a feed whose memory alone is left.
            info.feed.num_batches() > 0
                ? absl::StrCat(" batches=", info.feed.num_batches())
                : "",
            // Else nothing is missing.
            info.num_teams < info.max_teams
                ? absl::StrCat(" samples_at_once=", info.num_teams, " of ",
                               info.max_teams, " (scratch memory is short)")
                : "");
      });
}

void LogCacheEvent(const char* event, uint32_t uid, const std::string& name,
                   const absl::Status& status) {
  const auto level = status.ok() ? spdlog::level::info : spdlog::level::warn;
  Write(
      {LogSubsystem::kLoad, level, uid, event}, [] { return LogFields(); },
      [&] {
        return status.ok() ? absl::StrCat("cache: ", name, ": ", event)
                           : absl::StrCat("cache: ", name, ": ", event, ": ",
                                          status.message());
      });
}

void LogManifestEvent(const char* event, const absl::Status& status) {
  Write(
      {LogSubsystem::kServer, spdlog::level::err, geteuid(), event},
      [] { return LogFields(); },
      [&] {
        return absl::StrCat("list of loaded datasets: ", event, ": ",
                            status.message());
      });
}

void LogRpcEvent(const char* event, uint32_t uid, int32_t pid,
                 const std::string& detail) {
  WriteOfClient(LogSubsystem::kService, event, uid, pid,
                [&] { return detail; });
}

void LogAttachEvent(const char* event, uint32_t uid, int32_t pid,
                    absl::FunctionRef<std::string()> detail) {
  WriteOfClient(LogSubsystem::kAttach, event, uid, pid, detail);
}

void LogLeftOut() {
  for (const LogLimiter::LeftOut& left_out : Limiter().TakeLeftOut()) {
    const ScopedLogFields scope({.uid = left_out.uid});
    Log(LogSubsystem::kServer)
        .warn("uid={}: {} more lines like '{}' were left out", left_out.uid,
              left_out.num_lines, left_out.kind);
  }
}

}  // namespace datasetd
