#include "server/event_log.h"

#include "server/log_fields.h"
#include "server/logging.h"

namespace datasetd {

void LogDatasetEvent(const char* event, const DatasetInfo& info,
                     const Caller& caller) {
  const ScopedLogFields fields({.dataset = info.spec.name,
                                .uid = caller.uid,
                                .pid = caller.pid});
  if (info.state == DatasetState::kFailed) {
    Log(LogSubsystem::kLoad)
        .error("dataset={} {}: uid={} pid={}: {}", info.spec.name, event,
               caller.uid, caller.pid, std::string(info.error.message()));
    return;
  }
  Log(LogSubsystem::kLoad)
      .info("dataset={} {}: uid={} pid={} samples={} bytes={} device={}",
            info.spec.name, event, caller.uid, caller.pid, info.num_samples,
            info.resident_bytes, info.spec.device);
}

void LogFeedEvent(const char* event, const FeedInfo& info) {
  const ScopedLogFields fields({.dataset = info.dataset,
                                .feed = info.id,
                                .uid = info.owner.uid,
                                .pid = info.owner.pid});
  Log(LogSubsystem::kProducer)
      .info("feed={} dataset={} {}: uid={} pid={} slab_bytes={} batches={}",
            info.id, info.dataset, event, info.owner.uid, info.owner.pid,
            info.slab_bytes, info.num_batches);
}

void LogCacheEvent(const char* event, const std::string& name,
                   const absl::Status& status) {
  if (status.ok()) {
    Log(LogSubsystem::kLoad).info("cache: {}: {}", name, event);
  } else {
    Log(LogSubsystem::kLoad)
        .warn("cache: {}: {}: {}", name, event, std::string(status.message()));
  }
}

void LogManifestEvent(const char* event, const absl::Status& status) {
  Log(LogSubsystem::kServer)
      .error("list of loaded datasets: {}: {}", event,
             std::string(status.message()));
}

void LogRpcEvent(const char* event, uint32_t uid, int32_t pid,
                 const std::string& detail) {
  const ScopedLogFields fields({.uid = uid, .pid = pid});
  Log(LogSubsystem::kService)
      .warn("{}: uid={} pid={}: {}", event, uid, pid, detail);
}

void LogAttachEvent(const char* event, uint32_t uid, int32_t pid,
                    const std::string& detail) {
  const ScopedLogFields fields({.uid = uid, .pid = pid});
  Log(LogSubsystem::kAttach)
      .warn("{}: uid={} pid={}: {}", event, uid, pid, detail);
}

}  // namespace datasetd
