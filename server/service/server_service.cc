#include "server/service/server_service.h"

#include <unistd.h>

#include <string>

#include "base/utf8.h"
#include "proto/attach_protocol.h"
#include "server/feed/feed_plan.h"
#include "server/service/grpc_status.h"

namespace datasetd {

grpc::Status ServerService::GetStatus(grpc::ServerContext* call,
                                      const v1::GetStatusRequest*,
                                      v1::GetStatusResponse* response) {
  const auto caller = parts_.context->Authenticate(*call);
  if (!caller.ok()) return ToGrpcStatus(caller.status());
  response->set_version(parts_.version);
  response->set_protocol_version(attach::kProtocolVersion);
  response->set_pid(getpid());
  const timespec uptime =
      absl::ToTimespec(parts_.clock->Monotonic() - started_);
  response->mutable_uptime()->set_seconds(uptime.tv_sec);
  response->mutable_uptime()->set_nanos(static_cast<int32_t>(uptime.tv_nsec));
  const MemoryBudget* const pinned = parts_.devices->pinned();
  const DatasetRegistry::Summary datasets = parts_.datasets->Summarize();
  for (const ServedDevice& served : parts_.devices->devices()) {
    const DeviceInfo& info = served.backend->info();
    v1::Device* const device = response->add_devices();
    device->set_name(info.name);
    device->set_description(info.description);
    if (!info.is_host) {
      device->set_gpu_uuid(info.uuid.data(), info.uuid.size());
      device->set_is_mig(info.is_mig);
    }
    device->set_error(PrintableUtf8(served.health->error()));
    for (const ServedDevice& peer : parts_.devices->devices()) {
      if (served.backend->CanReadPeer(*peer.backend)) {
        device->add_peers(peer.name());
      }
    }
    device->set_memory_budget_bytes(served.budget->total_bytes());
    device->set_dataset_bytes(
        served.budget->used_bytes_of_kind(MemoryKind::kDataset));
    const auto& unused = datasets.unused.at(served.budget.get());
    device->set_unused_bytes(unused.bytes);
    device->set_max_unused_bytes(unused.max_bytes);
    device->set_slab_bytes(
        served.budget->used_bytes_of_kind(MemoryKind::kSlab));
    device->set_scratch_bytes(
        served.budget->used_bytes_of_kind(MemoryKind::kScratch));
    device->set_default_prefetch_bytes(static_cast<uint64_t>(
        DefaultPrefetchBytes(info, served.budget->free_bytes())));
    if (!info.is_host && pinned != nullptr) {
      device->set_pinned_bytes(pinned->used_bytes());
    }
  }
  response->set_num_sessions(
      static_cast<uint32_t>(parts_.sessions->num_sessions()));
  response->set_num_feeds(static_cast<uint32_t>(parts_.feeds->num_feeds()));
  response->set_num_datasets(static_cast<uint32_t>(datasets.num_datasets));
  const absl::Duration evict_after = datasets.evict_unused_after;
  if (evict_after > absl::ZeroDuration()) {
    response->mutable_evict_unused_after()->set_seconds(
        absl::ToInt64Seconds(absl::Ceil(evict_after, absl::Seconds(1))));
  }
  response->set_is_draining(parts_.context->is_draining());
  for (const std::string& format : parts_.formats) {
    response->add_formats(format);
  }
  return grpc::Status::OK;
}

}  // namespace datasetd
