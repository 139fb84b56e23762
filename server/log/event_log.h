// What is logged of datasets, feeds, the cache and clients: one line for each
// event, with the fields that people search by; the observers of the parts.
//
// A user may have 600 lines of a kind written at once, and 600 more a minute,
// in all at most 1 MiB in any minute (server/log/log_limiter.h). A line that
// comes after others of its kind were left out says how many. What is left out
// is not even formatted. Thread-safe.

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
// Of what a connection to the gRPC socket, or a call, did.
void LogRpcEvent(const char* event, uint32_t uid, int32_t pid,
                 const std::string& detail);
// `detail` is called if the line is written.
void LogAttachEvent(const char* event, uint32_t uid, int32_t pid,
                    absl::FunctionRef<std::string()> detail);

// Tells how much was left out of those who may write again; to be called every
// now and then.
void LogLeftOut();

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_EVENT_LOG_H_
