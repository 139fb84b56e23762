#include "server/load/load_estimate.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/dataset/field_message.h"
#include "server/load/bad_sample_filter.h"
#include "server/load/sample_scan.h"

namespace datasetd {
namespace {

// Why bad samples would end the load.
absl::Status CheckBadSamples(const OpenedSource& source,
                             const SampleScan::Result& found) {
  if (found.num_bad == 0) return absl::OkStatus();
  if (source.plan.bad_samples == v1::BAD_SAMPLE_POLICY_FAIL) {
    const auto& [index, status] = found.bad.front();
    return LocatedStatus(*source.reader, index, status);
  }
  if (found.num_bad > source.plan.max_bad_samples) {
    return absl::DataLossError(
        absl::StrCat(found.num_bad, " bad samples, and max_bad_samples is ",
                     source.plan.max_bad_samples));
  }
  if (found.num_bad == source.reader->info().num_samples) {
    return absl::DataLossError(
        absl::StrCat("all ", found.num_bad, " samples are bad"));
  }
  return absl::OkStatus();
}

absl::Status CheckBudgets(const PlacementRequest& request,
                          const Placement& placement,
                          const MemoryBudget::Terms& terms) {
  for (const Placement::Part& part : placement.parts) {
    const MemoryBudget* const budget = request.BudgetOf(part.device);
    const uint64_t total = budget == nullptr ? 0 : budget->total_bytes();
    const uint64_t limit =
        budget == nullptr ? 0 : budget->LimitOf(MemoryKind::kDataset, terms);
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

}  // namespace

absl::StatusOr<v1::LoadEstimate> EstimateLoad(const OpenedSource& source,
                                              const MemoryBudget::Terms& terms,
                                              const DecodeAccount& account,
                                              SourceScan& progress) {
  const SourceInfo& info = source.reader->info();
  progress.num_samples.store(info.num_samples, std::memory_order_relaxed);
  SampleScan scan(source.reader.get(), &source.plan, account);
  const absl::Status error =
      scan.Run(progress.is_cancelled, progress.num_samples_scanned);
  if (absl::IsCancelled(error)) return error;
  const SampleScan::Result& found = scan.result();
  absl::StatusOr<LoadPlan> finished = source.plan;
  if (source.plan.needs_sizes()) {
    finished =
        PlanSource(source.request, info, scan.sizes(), source.plan.limits);
  }
  const LoadPlan& plan = finished.ok() ? *finished : source.plan;
  const Placement placement =
      PlanPlacement(source.placement, plan,
                    RoomsOf(source.placement, plan, account.uid, terms));

  v1::LoadEstimate estimate;
  estimate.set_device(source.placement.devices.Text());
  estimate.set_num_samples(info.num_samples);
  estimate.set_num_classes(static_cast<int64_t>(info.class_names.size()));
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    FieldToMessage(field.resident, estimate.add_fields());
  }
  for (const FileInfo& file : info.files) {
    estimate.set_source_bytes(
        SaturatingAdd(estimate.source_bytes(), file.size_bytes));
  }
  estimate.set_residency(placement.residency);
  const std::vector<v1::Placement> placements = placement.Describe();
  *estimate.mutable_placements() = {placements.begin(), placements.end()};
  estimate.set_resident_bytes(placement.resident_bytes());
  uint64_t free_bytes = std::numeric_limits<int64_t>::max();
  for (const ServedDevice* const device : source.placement.devices.devices) {
    free_bytes = std::min(free_bytes, device->budget->free_bytes());
  }
  estimate.set_free_bytes(static_cast<int64_t>(free_bytes));
  estimate.set_host_bytes(plan.host_bytes(
      found.largest_sample_bytes, account.budget->limits().total_bytes));
  if (found.largest != ImageSize()) {
    SetExtent(found.smallest, estimate.mutable_smallest());
    SetExtent(found.largest, estimate.mutable_largest());
  }
  BadSampleReport bad_samples;
  for (const auto& [index, status] : found.bad) {
    AddBadSample(*source.reader, index, status, bad_samples);
  }
  BadSamplesToMessage(bad_samples, estimate.mutable_bad_samples());
  estimate.set_num_bad_samples(found.num_bad);
  std::vector<LoadNote> notes = info.notes;
  AddExifNote(found.num_unapplied_exif, notes);
  NotesToMessage(notes, estimate.mutable_notes());
  for (const absl::Status& problem :
       {error, CheckBadSamples(source, found), found.mismatch,
        CheckBudgets(source.placement, placement, terms), finished.status()}) {
    if (problem.ok()) continue;
    estimate.set_problem(PrintableUtf8(problem.message()));
    break;
  }
  return estimate;
}

}  // namespace datasetd
