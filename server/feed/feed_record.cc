#include "server/feed/feed_record.h"

#include <algorithm>
#include <utility>

#include "proto/same_values.h"

namespace datasetd {

FeedInfo FeedRecord::InfoAt(absl::Duration now) const {
  FeedInfo described = info;
  v1::Feed& message = described.feed;
  message.set_is_attached(info.phase == FeedPhase::kAttached);
  if (feed == nullptr) return described;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  described.num_teams = feed->scratch().num_teams();
  described.max_teams = feed->scratch().max_teams();
  const FeedStats& stats = feed->stats();
  message.mutable_position()->set_epoch(stats.next_epoch.load(kRelaxed));
  message.mutable_position()->set_batch(stats.next_batch.load(kRelaxed));
  message.set_num_batches(stats.num_batches.load(kRelaxed));
  message.set_num_samples(stats.num_samples.load(kRelaxed));
  message.set_num_slots_held(stats.num_slots_held.load(kRelaxed));
  message.set_num_ignored_releases(stats.num_ignored_releases.load(kRelaxed));
  message.set_num_ignored_seeks(stats.num_ignored_seeks.load(kRelaxed));
  message.set_num_launches(stats.num_launches.load(kRelaxed));
  // As the client says, and at most the feed's age.
  message.set_client_wait_seconds(
      std::min(1e-9 * static_cast<double>(feed->client_wait_nanoseconds()),
               absl::ToDoubleSeconds(now - opened)));
  message.set_daemon_wait_seconds(
      1e-9 * static_cast<double>(stats.daemon_wait_nanoseconds.load(kRelaxed)));
  described.hand_over = stats.hand_over.Read();
  return described;
}

void ReleaseSlab(std::unique_ptr<ExportedMemory> slab, SlabUse use) {
  if (use == SlabUse::kUnused) slab->Revoke();
  // Freeing memory that a process maps by such a handle is undefined behaviour;
  // the end of this process frees it.
  if (use == SlabUse::kLeft &&
      slab->export_kind() == ExportKind::kCudaIpcHandle) {
    (void)slab.release();
  }
}

DATASETD_SAME_VALUE(ExportKind::kMemfd, EXPORT_KIND_MEMFD);
DATASETD_SAME_VALUE(ExportKind::kCudaIpcHandle, EXPORT_KIND_CUDA_IPC_HANDLE);
DATASETD_SAME_VALUE(ExportKind::kCudaVmmFd, EXPORT_KIND_CUDA_VMM_FD);

void DescribeSlab(const Feed& feed, v1::SlabExport* to) {
  const ExportedMemory& slab = feed.slab();
  const DeviceInfo& device = feed.backend().info();
  to->set_kind(static_cast<v1::ExportKind>(slab.export_kind()));
  to->set_size_bytes(slab.size_bytes());
  to->set_cuda_ipc_handle(slab.ipc_handle().data(), slab.ipc_handle().size());
  to->set_device(device.name);
  if (slab.export_kind() != ExportKind::kMemfd) {
    to->set_gpu_uuid(device.uuid.data(), device.uuid.size());
    to->set_is_mig(device.is_mig);
  }
}

}  // namespace datasetd
