#include "server/load/load_estimator.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/dataset/field_message.h"
#include "server/load/bad_sample_filter.h"
#include "server/load/sample_transform.h"

namespace datasetd {
namespace {

constexpr size_t kMaxSizes = 4096;
constexpr size_t kMaxKeptBadSamples = 16 * kMaxListedBadSamples;

}  // namespace

LoadEstimator::LoadEstimator(OpenedSource source,
                             const MemoryBudget::Terms& terms,
                             const DecodeAccount& account)
    : source_(std::move(source)),
      terms_(terms),
      account_(account),
      transforms_(MakeTransforms(source_.reader->info(), source_.plan)),
      resident_sizes_(source_.reader->info(), source_.plan, &transforms_) {
  const LoadPlan& plan = source_.plan;
  if (!plan.is_encoded) {
    largest_sample_bytes_ = ScratchBytes(SampleProbe());
    return;
  }
  source_.reader->AllowSmallerImages(plan.smaller_images);
  scan_ = std::make_unique<SampleScan>(
      source_.reader.get(), plan.num_workers, account_, &is_stopping_,
      [this](int64_t index, const SampleProbe& probe, int64_t size_bytes) {
        return Look(index, probe, size_bytes);
      },
      [this](int64_t index, const absl::Status& status) {
        AddBad(index, status);
      });
}

void LoadEstimator::AddBad(int64_t index, const absl::Status& status) {
  MutexLock lock(&mutex_);
  ++num_bad_;
  if (bad_.size() < kMaxKeptBadSamples) bad_.emplace_back(index, status);
}

absl::Status LoadEstimator::Look(int64_t index, const SampleProbe& probe,
                                 int64_t size_bytes) {
  size_bytes = SaturatingAdd(size_bytes, ScratchBytes(probe));
  DATASETD_RETURN_IF_ERROR(account_.budget->CheckSample(size_bytes));
  // CheckSizes reports samples that cannot become resident.
  resident_sizes_.Set(index, probe).IgnoreError();
  MutexLock lock(&mutex_);
  largest_sample_bytes_ = std::max(largest_sample_bytes_, size_bytes);
  if (probe.has_unapplied_exif) ++num_unapplied_exif_;
  absl::Span<const ImageSize> ragged = probe.sizes;
  for (size_t f = 0; f < transforms_.size(); ++f) {
    if (!transforms_[f]->source().is_ragged) continue;
    const ImageSize size = transforms_[f]->TakeSize(ragged);
    IncludeSize(size, smallest_, largest_);
    if (sizes_.size() >= kMaxSizes) continue;
    int64_t& first =
        sizes_.emplace(FieldSize(f, size.height, size.width), index)
            .first->second;
    first = std::min(first, index);
  }
  return absl::OkStatus();
}

v1::LoadEstimate LoadEstimator::Result() {
  const SourceInfo& info = source_.reader->info();
  v1::LoadEstimate estimate;
  estimate.set_device(source_.placement.devices.Text());
  estimate.set_num_samples(info.num_samples);
  estimate.set_num_classes(static_cast<int64_t>(info.class_names.size()));
  const absl::StatusOr<LoadPlan> finished = FinishedPlan();
  const LoadPlan& plan = finished.ok() ? *finished : source_.plan;
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    FieldToMessage(field.resident, estimate.add_fields());
  }
  for (const FileInfo& file : info.files) {
    estimate.set_source_bytes(
        SaturatingAdd(estimate.source_bytes(), file.size_bytes));
  }
  const Placement placement =
      PlanPlacement(source_.placement, plan,
                    RoomsOf(source_.placement, plan, account_.uid, terms_));
  estimate.set_residency(placement.residency);
  const std::vector<v1::Placement> placements = placement.Describe();
  *estimate.mutable_placements() = {placements.begin(), placements.end()};
  estimate.set_resident_bytes(placement.resident_bytes());
  uint64_t free_bytes = std::numeric_limits<int64_t>::max();
  for (const ServedDevice* const device : source_.placement.devices.devices) {
    free_bytes = std::min(free_bytes, device->budget->free_bytes());
  }
  estimate.set_free_bytes(static_cast<int64_t>(free_bytes));
  MutexLock lock(&mutex_);
  estimate.set_host_bytes(plan.host_bytes(
      largest_sample_bytes_, account_.budget->limits().total_bytes));
  if (largest_ != ImageSize()) {
    SetExtent(smallest_, estimate.mutable_smallest());
    SetExtent(largest_, estimate.mutable_largest());
  }
  std::sort(bad_.begin(), bad_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  BadSampleReport bad_samples;
  for (const auto& [index, status] : bad_) {
    AddBadSample(*source_.reader, index, status, bad_samples);
  }
  BadSamplesToMessage(bad_samples, estimate.mutable_bad_samples());
  estimate.set_num_bad_samples(num_bad_);
  std::vector<LoadNote> notes = info.notes;
  AddExifNote(num_unapplied_exif_, notes);
  NotesToMessage(notes, estimate.mutable_notes());
  absl::Status problem = FindProblem(placement);
  if (problem.ok()) problem = finished.status();
  estimate.set_problem(PrintableUtf8(problem.message()));
  return estimate;
}

absl::StatusOr<LoadPlan> LoadEstimator::FinishedPlan() const {
  if (!source_.plan.needs_sizes()) return source_.plan;
  return PlanSource(source_.request, source_.reader->info(),
                    resident_sizes_.sizes(), source_.plan.limits);
}

absl::Status LoadEstimator::FindProblem(const Placement& placement) const {
  if (scan_ != nullptr) DATASETD_RETURN_IF_ERROR(scan_->error());
  if (num_bad_ > 0 && source_.plan.bad_samples == v1::BAD_SAMPLE_POLICY_FAIL) {
    const auto& [index, status] = bad_.front();
    return LocatedStatus(*source_.reader, index, status);
  }
  if (num_bad_ > 0 && num_bad_ > source_.plan.max_bad_samples) {
    return absl::DataLossError(
        absl::StrCat(num_bad_, " bad samples, and max_bad_samples is ",
                     source_.plan.max_bad_samples));
  }
  if (num_bad_ > 0 && num_bad_ == num_samples()) {
    return absl::DataLossError(
        absl::StrCat("all ", num_bad_, " samples are bad"));
  }
  DATASETD_RETURN_IF_ERROR(CheckSizes());
  for (const Placement::Part& part : placement.parts) {
    const MemoryBudget* const budget = source_.placement.BudgetOf(part.device);
    const uint64_t total = budget == nullptr ? 0 : budget->total_bytes();
    const uint64_t limit =
        budget == nullptr ? 0 : budget->LimitOf(MemoryKind::kDataset, terms_);
    const auto bytes = static_cast<uint64_t>(part.size_bytes);
    if (bytes <= total && (limit == 0 || bytes <= limit)) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        bytes, " bytes, and the memory budget of ",
        part.device == nullptr ? "pinned host memory" : part.device->name(),
        " is ", total,
        bytes <= total ? absl::StrCat(", of which one user may have ", limit)
                       : ""));
  }
  return absl::OkStatus();
}

int64_t LoadEstimator::ScratchBytes(const SampleProbe& probe) const {
  int64_t bytes = 0;
  absl::Span<const ImageSize> ragged = probe.sizes;
  for (const std::unique_ptr<SampleTransform>& transform : transforms_) {
    const auto scratch_bytes =
        transform->ScratchBytes(transform->TakeSize(ragged));
    if (scratch_bytes.ok()) bytes = SaturatingAdd(bytes, *scratch_bytes);
  }
  return bytes;
}

absl::Status LoadEstimator::CheckSizes() const {
  // Report the first failing sample, as the load would.
  int64_t first = num_samples();
  absl::Status problem;
  for (const auto& [key, index] : sizes_) {
    const auto& [field, height, width] = key;
    if (index >= first) continue;
    const absl::Status status = transforms_[field]->Check({height, width});
    if (status.ok()) continue;
    first = index;
    problem = LocatedStatus(*source_.reader, index, status);
  }
  return problem;
}

}  // namespace datasetd
