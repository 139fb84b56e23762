// What is logged of datasets, feeds, the cache and clients: one line for each
// event, with the fields that people search by. Thread-safe; the observers of
// the parts.

#ifndef DATASETD_SERVER_EVENT_LOG_H_
#define DATASETD_SERVER_EVENT_LOG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "server/core/caller.h"
#include "server/core/dataset_info.h"
#include "server/core/feed_info.h"

namespace datasetd {

void LogDatasetEvent(const char* event, const DatasetInfo& info,
                     const Caller& caller);
void LogFeedEvent(const char* event, const FeedInfo& info);
void LogCacheEvent(const char* event, const std::string& name,
                   const absl::Status& status);
void LogManifestEvent(const char* event, const absl::Status& status);
void LogRpcEvent(const char* event, uint32_t uid, int32_t pid,
                 const std::string& detail);
void LogAttachEvent(const char* event, uint32_t uid, int32_t pid,
                    const std::string& detail);

}  // namespace datasetd

#endif  // DATASETD_SERVER_EVENT_LOG_H_
