// Logs events of datasets, feeds, the cache and clients: one line per event,
// with the journal fields that operators search by. Passed as observer to those
// parts.
//
// A user may cause a burst of 600 lines of a kind, then 600 per minute, and in
// total at most 1 MiB in any minute (server/log/log_limiter.h). The next line
// of a kind after suppressed ones reports their number. Suppressed lines are
// not formatted. Thread-safe.

#ifndef DATASETD_SERVER_LOG_EVENT_LOG_H_
#define DATASETD_SERVER_LOG_EVENT_LOG_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/dataset/caller.h"
#include "server/dataset/dataset_info.h"
#include "server/feed/feed_info.h"

namespace datasetd {

void LogDatasetEvent(const char* event, const DatasetInfo& info,
                     const Caller& caller);
void LogFeedEvent(const char* event, const FeedInfo& info);
void LogCacheEvent(const char* event, uint32_t uid, const std::string& name,
                   const absl::Status& status);
void LogManifestEvent(const char* event, const absl::Status& status);
// Logs an event of a gRPC connection or call.
void LogRpcEvent(const char* event, uint32_t uid, int32_t pid,
                 const std::string& detail);
// `detail` is called only if the line is written.
void LogAttachEvent(const char* event, uint32_t uid, int32_t pid,
                    absl::FunctionRef<std::string()> detail);

// Reports suppressed lines of users who may write again. Call it periodically.
void LogLeftOut();

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_EVENT_LOG_H_
