// A feed of the table (feed_table.h) and what it holds.

#ifndef DATASETD_SERVER_FEED_FEED_RECORD_H_
#define DATASETD_SERVER_FEED_FEED_RECORD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "cuda/backend/backend.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/memory_budget.h"
#include "server/dataset/user_places.h"
#include "server/feed/feed.h"
#include "server/feed/feed_datasets.h"
#include "server/feed/feed_info.h"
#include "server/feed/producer.h"
#include "server/order/client_order.h"
#include "server/order/order_arrays.h"
#include "server/order/weight_table.h"

namespace datasetd {

enum class SlabUse : uint8_t {
  kUsed,    // the client may use it
  kUnused,  // the client is done with it
  kLeft,    // the client may use it, and the daemon exits
};

struct FeedRecord {
  // With the counters of the feed and of its scratch pool. `now` is of the
  // monotonic clock.
  FeedInfo InfoAt(absl::Duration now) const;

  // Without what is from FeedStats and the scratch pool; see InfoAt.
  FeedInfo info;
  // A serialized v1::GetFeedTransformsResponse; nullopt: too long to keep, or
  // not the same for all parts of a mixture.
  std::optional<std::string> transforms;
  // Times of the monotonic clock.
  absl::Duration opened;
  absl::Duration deadline;  // while pending, unless its arrays are read
  SlabUse slab_use = SlabUse::kUsed;
  std::shared_ptr<ClientOrder> order;   // null: the daemon makes the order
  std::shared_ptr<OrderArrays> arrays;  // with the memory of their tables
  bool is_reading_arrays = false;
  // The last weights that the feed was given, if it is weighted: those of
  // `arrays`, which it keeps alive. Those before are the feed's, if it still
  // draws by them.
  std::shared_ptr<const WeightTable> weights;
  bool keeps_datasets = false;  // of its options
  // While other weights are read: theirs.
  std::shared_ptr<OrderArrays> new_arrays;
  // Destroyed in reverse order if opening fails: memory before its reservation,
  // and everything before the place.
  UserPlaces::Place place;
  Reservation slab_reservation;
  Reservation scratch_reservation;
  FeedDatasets datasets;
  std::unique_ptr<ExportedMemory> slab;  // while lingering
  std::unique_ptr<Feed> feed;            // before lingering
  Producer* producer = nullptr;
};

// Frees a slab, and takes it from a client that is done with it. One that was
// exported by CUDA IPC handle and may be in use stays to the end of the
// process. REQUIRES: `use` is not kUsed.
void ReleaseSlab(std::unique_ptr<ExportedMemory> slab, SlabUse use);

// Describes the slab of a feed to its client.
void DescribeSlab(const Feed& feed, v1::SlabExport* to);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_RECORD_H_
