// The answer to OpenFeed: a new feed as described to its client.

#ifndef DATASETD_SERVER_FEED_OPENED_FEED_H_
#define DATASETD_SERVER_FEED_OPENED_FEED_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/device/backend.h"
#include "server/feed/slot_layout.h"

namespace datasetd {

struct OpenedFeed {
  uint64_t id = 0;
  SlotLayout layout;
  uint32_t num_slots = 0;
  uint64_t slab_bytes = 0;
  ExportKind export_kind = ExportKind::kMemfd;
  std::vector<uint8_t> ipc_handle;
  std::string device;
  std::array<uint8_t, 16> uuid = {};
  uint64_t batches_per_epoch = 0;
  int64_t num_samples = 0;  // that the feed draws from
  std::string content_hash;
  std::string transforms_hash;
  uint32_t prefetch = 0;
  uint32_t order_capacity = 0;  // of a client's order, in batches
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_OPENED_FEED_H_
