// The parts of a feed and its memory needs, computed before any memory is
// taken. load_plan.h is the same for loads.

#ifndef DATASETD_SERVER_FEED_FEED_PLAN_H_
#define DATASETD_SERVER_FEED_FEED_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/dataset.h"
#include "server/feed/feed.h"
#include "server/feed/feed_fields.h"
#include "server/feed/noise_datasets.h"
#include "server/order/client_order.h"
#include "server/order/document_order.h"
#include "server/order/group_table.h"
#include "server/order/subset.h"
#include "server/order/weight_table.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

struct FeedPlan {
  // All options except id, order, subset, weights and groups.
  Feed::Options feed;
  v1::SlotLayout layout;
  int64_t prefetch = 0;
  int64_t num_slots = 0;
  int64_t slab_bytes = 0;  // rounded up to the allocation size
  // Memory beside the slab: indices, program and order, and on the host the
  // chains' scratch.
  int64_t scratch_bytes = 0;
  // Beside that, of subset, weights and classes.
  int64_t array_bytes = 0;
  // Bytes of the device's ScratchPool for each team of the chains; 0 on the
  // host, and without chains.
  int64_t team_bytes = 0;
  // Set if the client makes the order.
  std::optional<ClientOrder::Options> order;
  // Set if it is of some samples.
  std::optional<SubsetTable::Options> subset;
  // Set if the order is weighted.
  std::optional<WeightTable::Options> weights;
  // Set if rows are made of documents.
  std::optional<DocumentTable::Options> documents;
  // Set if it is of groups that the daemon draws.
  std::optional<GroupTable::Options> groups;
  int64_t num_samples = 0;  // of OpenFeedResponse
  std::string transforms_hash;
};

// The memory of the batches that a feed makes ahead by default, where
// `free_bytes` of the device's budget are free.
int64_t DefaultPrefetchBytes(const DeviceInfo& device, uint64_t free_bytes);

// Plans a feed that runs on `device`, one of the dataset's backends; null: the
// first. `free_bytes`: as for DefaultPrefetchBytes. With `num_slots` the feed
// has so many, not by its prefetch. The plan holds a reference to the dataset.
// Pure; thread-safe. `fields` are CompleteFieldOptions(options.fields()), and
// `part_fields` CompletePartFields(options). With a mixture in the options the
// dataset is made of its parts. `noise` has the datasets of AddNoise, which the
// caller uses while the feed runs.
// REQUIRES: CheckFeedOptions(options) is OK.
//   INVALID_ARGUMENT  a field, an op, the batch size, the order, its start, the
//                     size of the subset or of the weights, or the windows are
//                     invalid, or an op exceeds the limits
absl::StatusOr<FeedPlan> PlanFeed(
    const v1::FeedOptions& options, const FieldOptionsMap& fields,
    std::shared_ptr<const Dataset> dataset, const TransformLimits& limits = {},
    Backend* device = nullptr, uint64_t free_bytes = 0, int64_t num_slots = 0,
    const std::vector<PartFields>& part_fields = {},
    const NoiseDatasets& noise = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_PLAN_H_
