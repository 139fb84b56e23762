#include "server/load/dataset_sources.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/cache/cached_source.h"
#include "server/dataset/dataset_limits.h"
#include "server/dataset/device_list.h"
#include "server/load/load_estimate.h"

namespace datasetd {
namespace {

// For the buffers of loads: two of the largest, and one of one user's.
DecodeBudget::Limits StagingLimits(const DecodeBudget::Limits& limits) {
  const int64_t most = MaxLoadBufferBytes(limits.sample_bytes);
  return {.sample_bytes = most, .total_bytes = SaturatingMultiply(2, most)};
}

// For the lists of samples and files that sources keep, and for the indices of
// datasets; one user has half.
DecodeBudget::Limits ListLimits(const DecodeBudget::Limits& limits) {
  const int64_t most = SaturatingMultiply(4, limits.sample_bytes);
  return {.sample_bytes = most, .total_bytes = SaturatingMultiply(2, most)};
}

}  // namespace

DatasetSources::DatasetSources(DeviceTable* devices, DatasetCache* cache,
                               const DecodeBudget::Limits& decode_limits,
                               const TransformLimits& transform_limits,
                               Opener open)
    : devices_(devices),
      cache_(cache),
      decode_budget_(decode_limits),
      staging_budget_(StagingLimits(decode_limits)),
      list_budget_(ListLimits(decode_limits)),
      limits_{.transforms = transform_limits,
              .max_sample_bytes = decode_budget_.limits().sample_bytes},
      open_(std::move(open)) {}

absl::StatusOr<PlacementRequest> DatasetSources::FindPlacement(
    const v1::DatasetSpec& spec) const {
  PlacementRequest request;
  DATASETD_ASSIGN_OR_RETURN(request.devices,
                            FindDevices(*devices_, spec.device()));
  if (spec.residency() != v1::RESIDENCY_UNSPECIFIED) {
    request.residency = spec.residency();
  }
  request.device_bytes = static_cast<int64_t>(spec.device_bytes());
  request.pinned = devices_->pinned();
  request.has_cache = cache_ != nullptr;
  DATASETD_RETURN_IF_ERROR(CheckPlacement(request));
  return request;
}

absl::StatusOr<OpenedSource> DatasetSources::Plan(
    LoadRequest request, PlacementRequest placement,
    std::unique_ptr<SampleSource> reader, std::string spec_id) const {
  DATASETD_RETURN_IF_ERROR(CheckClassNames(reader->info().class_names));
  OpenedSource opened;
  DATASETD_ASSIGN_OR_RETURN(opened.plan, PlanSource(request, reader->info(),
                                                    /*own_sizes=*/{}, limits_));
  opened.request = std::move(request);
  opened.placement = std::move(placement);
  opened.reader = std::move(reader);
  opened.spec_id = std::move(spec_id);
  return opened;
}

absl::StatusOr<OpenedSource> DatasetSources::OpenFiles(
    LoadRequest request, PlacementRequest placement, uid_t uid,
    std::shared_ptr<SourceScan> scan) const {
  scan->account = {
      .budget = &decode_budget_, .uid = uid, .lists = &list_budget_};
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<SampleSource> reader,
                            open_(*request.spec, std::move(scan)));
  std::string spec_id =
      SpecId(request, placement.devices.Text(), reader->info());
  return Plan(std::move(request), std::move(placement), std::move(reader),
              std::move(spec_id));
}

absl::StatusOr<OpenedSource> DatasetSources::OpenPush(
    LoadRequest request, std::unique_ptr<SampleSource> source) const {
  DATASETD_ASSIGN_OR_RETURN(PlacementRequest placement,
                            FindPlacement(*request.spec));
  return Plan(std::move(request), std::move(placement), std::move(source), "");
}

absl::StatusOr<OpenedSource> DatasetSources::OpenPushed(
    LoadRequest request, const std::string& content_hash,
    uint32_t owner_uid) const {
  DATASETD_ASSIGN_OR_RETURN(PlacementRequest placement,
                            FindPlacement(*request.spec));
  std::string spec_id =
      PushedSpecId(request.spec->name(), content_hash, owner_uid);
  std::unique_ptr<CachedSource> entry;
  if (cache_ != nullptr) entry = cache_->Find(spec_id);
  if (entry == nullptr || entry->header().owner_uid != owner_uid ||
      entry->header().content_hash != content_hash) {
    return absl::NotFoundError(absl::StrCat(
        "the samples that were pushed are not in the cache, or cannot be read "
        "there, of which the log tells (content hash ",
        content_hash, "); push them again"));
  }
  request.pretransforms.clear();  // applied before the samples were stored
  DATASETD_ASSIGN_OR_RETURN(OpenedSource opened,
                            Plan(std::move(request), std::move(placement),
                                 std::move(entry), std::move(spec_id)));
  opened.content_hash = content_hash;
  return opened;
}

absl::StatusOr<v1::LoadEstimate> DatasetSources::Estimate(
    v1::DatasetSpec spec, const Caller& caller,
    std::shared_ptr<SourceScan> scan) const {
  DATASETD_ASSIGN_OR_RETURN(LoadRequest request,
                            CheckRequest(std::move(spec), caller));
  DATASETD_ASSIGN_OR_RETURN(PlacementRequest placement,
                            FindPlacement(*request.spec));
  const MemoryBudget::Terms terms = TermsOf(*request.spec, caller);
  DATASETD_ASSIGN_OR_RETURN(
      OpenedSource source,
      OpenFiles(std::move(request), std::move(placement), caller.uid, scan));
  return EstimateLoad(source, terms,
                      {.budget = &decode_budget_, .uid = caller.uid}, *scan);
}

}  // namespace datasetd
