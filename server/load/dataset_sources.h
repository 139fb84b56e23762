// Opens the sources of datasets: files through a reader, pushes, and earlier
// pushes from the cache. Immutable; thread-safe if the opener is.

#ifndef DATASETD_SERVER_LOAD_DATASET_SOURCES_H_
#define DATASETD_SERVER_LOAD_DATASET_SOURCES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/cache/dataset_cache.h"
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

  // `devices`, `cache`, which may be null, and `decode_budget` outlive it and
  // what it opens; so does `list_budget`, which may be null.
  DatasetSources(DeviceTable* devices, DatasetCache* cache,
                 DecodeBudget* decode_budget, DecodeBudget* list_budget,
                 const TransformLimits& transform_limits, Opener open)
      : devices_(devices),
        cache_(cache),
        decode_budget_(decode_budget),
        list_budget_(list_budget),
        limits_{.transforms = transform_limits,
                .max_sample_bytes = decode_budget->limits().sample_bytes},
        open_(std::move(open)) {}

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
  DecodeBudget* const decode_budget_;
  DecodeBudget* const list_budget_;
  const LoadLimits limits_;
  const Opener open_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_DATASET_SOURCES_H_
