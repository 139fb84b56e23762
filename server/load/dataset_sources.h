// Opens the sources of datasets: files through a reader, pushes, and earlier
// pushes from the cache; and has the accounts that pay for reading them.
// Thread-safe if the opener is.

#ifndef DATASETD_SERVER_LOAD_DATASET_SOURCES_H_
#define DATASETD_SERVER_LOAD_DATASET_SOURCES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/cache/dataset_cache.h"
#include "server/dataset/caller.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/device_list.h"
#include "server/dataset/device_table.h"
#include "server/dataset/sample_source.h"
#include "server/load/load_plan.h"
#include "server/load/load_request.h"
#include "server/load/placement.h"
#include "server/load/source_scan.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// The format of datasets that clients pushed; they have no files.
inline constexpr char kPushedFormat[] = "push";

// A source and what is known about it before any sample is read.
struct OpenedSource {
  LoadRequest request;
  PlacementRequest placement;
  std::unique_ptr<SampleSource> reader;
  std::string spec_id;  // empty: a push whose content is not known yet
  // The content hash that the samples of an earlier push must have; else empty.
  std::string content_hash;
  LoadPlan plan;
};

class DatasetSources {
 public:
  using Opener = std::function<absl::StatusOr<std::unique_ptr<SampleSource>>(
      const v1::DatasetSpec& spec, std::shared_ptr<SourceScan> scan)>;

  // `devices` and `cache`, which may be null, outlive it and what it opens.
  DatasetSources(DeviceTable* devices, DatasetCache* cache,
                 const DecodeBudget::Limits& decode_limits,
                 const TransformLimits& transform_limits, Opener open);

  // Returns the account that pays for a user's loads and pushes. Not longer
  // than this lives.
  DecodeAccount AccountOf(uid_t uid) const {
    return {.budget = &decode_budget_,
            .uid = uid,
            .staging = &staging_budget_,
            .lists = &list_budget_};
  }

  // Dry run of a load: scans the source's files, then the headers of its
  // samples. Blocks. Errors as CheckRequest, FindPlacement and OpenFiles;
  // others as EstimateLoad.
  absl::StatusOr<v1::LoadEstimate> Estimate(
      v1::DatasetSpec spec, const Caller& caller,
      std::shared_ptr<SourceScan> scan = std::make_shared<SourceScan>()) const;

  // Finds the devices of a spec.
  //   INVALID_ARGUMENT  no such device
  // Also errors of CheckPlacement.
  absl::StatusOr<PlacementRequest> FindPlacement(
      const v1::DatasetSpec& spec) const;

  // Looks at the source's files, for user `uid`, which may take long.
  // `placement` is of FindPlacement.
  //   INVALID_ARGUMENT  as PlanSource
  //   CANCELLED         scan->is_cancelled was set
  // Also any error of the opener.
  absl::StatusOr<OpenedSource> OpenFiles(
      LoadRequest request, PlacementRequest placement, uid_t uid,
      std::shared_ptr<SourceScan> scan) const;

  // Opens a source that a client sends. Errors as FindPlacement and OpenFiles.
  absl::StatusOr<OpenedSource> OpenPush(
      LoadRequest request, std::unique_ptr<SampleSource> source) const;

  // Opens what this user pushed to an earlier daemon under this name.
  //   NOT_FOUND  not in the cache
  absl::StatusOr<OpenedSource> OpenPushed(LoadRequest request,
                                          const std::string& content_hash,
                                          uint32_t owner_uid) const;

 private:
  absl::StatusOr<OpenedSource> Plan(LoadRequest request,
                                    PlacementRequest placement,
                                    std::unique_ptr<SampleSource> reader,
                                    std::string spec_id) const;

  DeviceTable* const devices_;
  DatasetCache* const cache_;
  // These lock by themselves.
  mutable DecodeBudget decode_budget_;
  mutable DecodeBudget staging_budget_;
  mutable DecodeBudget list_budget_;
  const LoadLimits limits_;
  const Opener open_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_DATASET_SOURCES_H_
