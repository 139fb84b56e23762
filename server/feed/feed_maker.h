// Makes feeds on the devices of the daemon, and owns what feeds of one device
// share: the producer that fills them, and the scratch memory of their chains.
//
// Thread-safe.

#ifndef DATASETD_SERVER_FEED_FEED_MAKER_H_
#define DATASETD_SERVER_FEED_FEED_MAKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/caller.h"
#include "server/dataset/device_table.h"
#include "server/feed/feed_channel.h"
#include "server/feed/feed_info.h"
#include "server/feed/feed_plan.h"
#include "server/feed/feed_record.h"
#include "server/feed/producer.h"
#include "server/feed/scratch_pool.h"
#include "server/order/order_arrays.h"
#include "server/order/weight_table.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

class FeedMaker {
 public:
  // All pointers outlive it. Slabs are exported in one of the ways that are
  // allowed (slab_allocation.h).
  static absl::StatusOr<std::unique_ptr<FeedMaker>> Create(
      std::vector<ExportKind> allowed_exports, DeviceTable* devices,
      DatasetRegistry* datasets, FeedChannelFactory make_channel,
      Producer::FailureFunction on_failure);

  // Makes a feed with its memory, of plan.feed; datasets and place are not set
  // yet. `visibility` is that of the datasets.
  // With a `channel` of its own its slab is for this process alone. Blocks:
  // memory is zeroed and tables are made. Errors as FeedService.OpenFeed.
  absl::StatusOr<std::unique_ptr<FeedRecord>> Make(
      uint64_t id, const v1::OpenFeedRequest& request, const Caller& owner,
      const Visibility& visibility, FeedPlan& plan,
      std::unique_ptr<FeedChannel> channel = nullptr);

  // Arrays that are filled by other weights of the same samples, and their
  // table, which keeps them alive.
  struct NewWeights {
    std::shared_ptr<OrderArrays> arrays;
    std::shared_ptr<const WeightTable> table;
  };
  // Makes those of a feed that has the weights `before`. May evict datasets,
  // unless `keeps_datasets`.
  //   RESOURCE_EXHAUSTED  the memory budget
  absl::StatusOr<NewWeights> MakeWeights(const FeedInfo& feed,
                                         const WeightTable& before,
                                         bool keeps_datasets);

  // By device name.
  const std::map<std::string, std::unique_ptr<Producer>>& producers() const {
    return producers_;
  }

 private:
  FeedMaker(std::vector<ExportKind> allowed_exports, DeviceTable* devices,
            DatasetRegistry* datasets, FeedChannelFactory make_channel);

  const std::vector<ExportKind> allowed_exports_;
  DeviceTable* const devices_;
  DatasetRegistry* const datasets_;
  const FeedChannelFactory make_channel_;
  std::map<std::string, std::unique_ptr<Producer>> producers_;
  // By device, the host left out. Their streams call the producers.
  std::map<std::string, std::unique_ptr<ScratchPool>> scratch_pools_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_MAKER_H_
