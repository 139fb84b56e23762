// What a feed is made of and how much memory it takes, known before any is
// taken: the feed's half of what load_plan.h is for a load.

#ifndef DATASETD_SERVER_FEED_FEED_PLAN_H_
#define DATASETD_SERVER_FEED_FEED_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/dataset/dataset.h"
#include "server/feed/client_order.h"
#include "server/feed/feed.h"
#include "server/feed/feed_options.h"
#include "server/feed/slot_layout.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

struct FeedPlan {
  // But for id, order and hand_over.
  Feed::Options feed;
  SlotLayout layout;
  int64_t prefetch = 0;
  int64_t num_slots = 0;
  int64_t slab_bytes = 0;  // rounded up as it is allocated
  // Beside the slab: indices, program, scratch of its ops, subset and order.
  int64_t scratch_bytes = 0;
  // Of a client's order.
  std::optional<ClientOrder::Options> order;
  std::string transforms_hash;
};

// Pure; thread-safe. Holds the dataset. REQUIRES: CheckFeedOptions(options).
//   INVALID_ARGUMENT  the dataset is on another device; a field, an op, the
//                     batch size or the subset is wrong, or an op beyond the
//                     limits
//   OUT_OF_RANGE      the subset names a sample that is not there
absl::StatusOr<FeedPlan> PlanFeed(const FeedOptions& options,
                                  std::shared_ptr<const Dataset> dataset,
                                  const TransformLimits& limits = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_PLAN_H_
