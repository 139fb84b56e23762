#include "server/load/dataset_load.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "server/load/mapped_load.h"
#include "server/load/sample_scan.h"

namespace datasetd {
namespace {

// True if the resident `fields` are those that the plan produces.
bool AreFieldsOf(const LoadPlan& plan, const std::vector<FieldSpec>& fields) {
  if (plan.fields.size() != fields.size()) return false;
  for (size_t f = 0; f < fields.size(); ++f) {
    FieldSpec planned = plan.fields[f].resident;
    if (plan.fields[f].needs_sizes && fields[f].shape.size() > 1) {
      planned.shape[0] = fields[f].shape[0];
      planned.shape[1] = fields[f].shape[1];
      planned.smallest = fields[f].smallest;
      planned.largest = fields[f].largest;
      planned.num_pixels = fields[f].num_pixels;
      planned.packed_bytes = fields[f].packed_bytes;
    }
    if (planned != fields[f]) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetLoad::Run(
    DatasetCache* cache, const Reserver& reserve, LoadCounters& counters) {
  DATASETD_RETURN_IF_ERROR(Receive(reserve));
  if (cache != nullptr) {
    auto cached = RunCached(*cache, reserve, counters);
    if (!cached.ok() || *cached != nullptr) return cached;
    counters.num_samples.store(0, std::memory_order_relaxed);
    counters.num_bytes.store(0, std::memory_order_relaxed);
  }
  if (source_.plan.needs_sizes()) {
    DATASETD_RETURN_IF_ERROR(FindSizes(reserve, counters));
  }
  const std::string& name = source_.request.spec->name();
  std::optional<MappedStore> store;
  if (IsMapped()) {
    const SourceInfo& info = source_.reader->info();
    CacheHeader header = {.spec_id = source_.spec_id,
                          .stored_by_uid = account_.uid,
                          .class_names = info.class_names,
                          .notes = info.notes};
    if (IsPushed()) header.owner_uid = account_.uid;
    store.emplace(cache, source_.plan, info.num_samples, name,
                  std::move(header), &counters);
  }
  auto dataset =
      LoadDataset(name, source_.plan, *source_.reader,
                  source_.placement.devices.first().backend.get(),
                  std::move(resident_), counters, account_,
                  source_.content_hash, store.has_value() ? &*store : nullptr);
  // A push that is restored was read from its entry. The same push could not be
  // stored while that is there.
  if (cache != nullptr && IsPushed() && !source_.spec_id.empty()) {
    (void)cache->GiveUp(source_.spec_id, dataset.status());
  }
  return dataset;
}

absl::StatusOr<Dataset::Contents> DatasetLoad::Hash(
    const std::function<absl::Status(const LoadPlan& plan)>& check,
    LoadCounters& counters) {
  const Reserver reserve =
      [&](const LoadPlan& plan) -> absl::StatusOr<PlacedMemory> {
    DATASETD_RETURN_IF_ERROR(check(plan));
    return PlacedMemory();
  };
  DATASETD_RETURN_IF_ERROR(Receive(reserve));
  if (source_.plan.needs_sizes()) {
    DATASETD_RETURN_IF_ERROR(FindSizes(reserve, counters));
  }
  return HashSamples(source_.plan, *source_.reader,
                     source_.placement.devices.first().backend.get(), counters,
                     account_);
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetLoad::RunCached(
    DatasetCache& cache, const Reserver& reserve, LoadCounters& counters) {
  // A new push has no entry, and the source of a restored one is the entry.
  if (IsPushed() && (!IsMapped() || source_.spec_id.empty())) return nullptr;
  const std::unique_ptr<CachedSource> entry = cache.Find(source_.spec_id);
  if (entry == nullptr) return nullptr;
  auto dataset = LoadEntry(*entry, cache, reserve, counters);
  if (dataset.ok()) {
    cache.CountHit(*entry);
    return dataset;
  }
  if (IsMapped() && absl::IsNotFound(dataset.status())) return nullptr;
  if (!cache.GiveUp(source_.spec_id, dataset.status())) return dataset;
  return nullptr;
}

// DATA_LOSS if it is damaged.
absl::StatusOr<std::shared_ptr<const Dataset>> DatasetLoad::LoadEntry(
    CachedSource& entry, DatasetCache& cache, const Reserver& reserve,
    LoadCounters& counters) {
  DATASETD_ASSIGN_OR_RETURN(const LoadPlan plan, PlanEntry(entry));
  if (source_.plan.needs_sizes()) {
    // Keep the source's plan in case the entry is damaged.
    DATASETD_RETURN_IF_ERROR(TakeMemory(plan, reserve));
  }
  const std::string& name = source_.request.spec->name();
  Backend* const backend = source_.placement.devices.first().backend.get();
  if (IsMapped()) {
    return MapDataset(name, entry, cache, backend, std::move(resident_),
                      counters);
  }
  return LoadDataset(name, plan, entry, backend, std::move(resident_), counters,
                     account_, entry.header().content_hash);
}

absl::StatusOr<LoadPlan> DatasetLoad::PlanEntry(
    const CachedSource& entry) const {
  const SourceInfo& info = entry.info();
  DATASETD_ASSIGN_OR_RETURN(
      LoadPlan plan,
      PlanSource({.spec = source_.request.spec, .pretransforms = {}}, info,
                 /*own_sizes=*/{}, source_.plan.limits));
  if (!AreFieldsOf(source_.plan, info.fields)) {
    return absl::DataLossError(
        "cache entry: its fields are not those of the source");
  }
  if (!source_.plan.needs_sizes() &&
      plan.resident_bytes > source_.plan.resident_bytes) {
    return absl::DataLossError(
        "cache entry: it has more samples than the source");
  }
  return plan;
}

absl::Status DatasetLoad::Receive(const Reserver& reserve) {
  SampleSource& reader = *source_.reader;
  if (!reader.info().is_awaited) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(reader.Receive());
  if (!source_.plan.needs_sizes()) return absl::OkStatus();
  DATASETD_ASSIGN_OR_RETURN(LoadPlan plan,
                            PlanSource(source_.request, reader.info(),
                                       /*own_sizes=*/{}, source_.plan.limits));
  if (!plan.needs_sizes()) {
    DATASETD_RETURN_IF_ERROR(TakeMemory(plan, reserve));
  }
  source_.plan = std::move(plan);
  return absl::OkStatus();
}

absl::Status DatasetLoad::FindSizes(const Reserver& reserve,
                                    LoadCounters& counters) {
  SampleScan scan(source_.reader.get(), &source_.plan, account_);
  DATASETD_RETURN_IF_ERROR(scan.Run(counters.is_cancelled, counters.num_sizes));
  DATASETD_RETURN_IF_ERROR(scan.result().mismatch);
  DATASETD_ASSIGN_OR_RETURN(LoadPlan plan,
                            PlanSource(source_.request, source_.reader->info(),
                                       scan.sizes(), source_.plan.limits));
  DATASETD_RETURN_IF_ERROR(TakeMemory(plan, reserve));
  source_.plan = std::move(plan);
  return absl::OkStatus();
}

absl::Status DatasetLoad::TakeMemory(const LoadPlan& plan,
                                     const Reserver& reserve) {
  // Releases what was reserved for a damaged cache entry.
  resident_ = PlacedMemory();
  DATASETD_ASSIGN_OR_RETURN(resident_, reserve(plan));
  return absl::OkStatus();
}

}  // namespace datasetd
