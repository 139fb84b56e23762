#include "server/registry/dataset_entry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "proto/same_values.h"
#include "server/dataset/field_message.h"

namespace datasetd {
namespace {

DATASETD_SAME_VALUE(DatasetState::kLoading, DATASET_STATE_LOADING);
DATASETD_SAME_VALUE(DatasetState::kReady, DATASET_STATE_READY);
DATASETD_SAME_VALUE(DatasetState::kFailed, DATASET_STATE_FAILED);
DATASETD_SAME_VALUE(DatasetState::kUnloading, DATASET_STATE_UNLOADING);

v1::LoadProgress ProgressOf(const DatasetEntry& entry, absl::Duration now) {
  v1::LoadProgress progress;
  const int64_t num_loaded =
      entry.counters.num_samples.load(std::memory_order_relaxed);
  const int64_t num_bytes =
      entry.counters.num_bytes.load(std::memory_order_relaxed);
  const int64_t num_sizes =
      entry.counters.num_sizes.load(std::memory_order_relaxed);
  const bool finds_sizes = num_sizes > 0 && num_loaded == 0;
  const bool is_loading = entry.state == DatasetState::kLoading;
  const double seconds = absl::ToDoubleSeconds(
      (is_loading ? now : entry.finished) - entry.started);
  progress.set_num_samples_loaded(num_loaded);
  progress.set_num_samples(entry.dataset.num_samples());
  progress.set_loaded_bytes(num_bytes);
  progress.set_resident_bytes(entry.dataset.resident_bytes());
  progress.set_elapsed_seconds(seconds);
  progress.set_is_scanning(is_loading && (!entry.is_planned || finds_sizes));
  if (entry.scan != nullptr) {
    progress.set_num_entries_scanned(
        entry.scan->num_entries.load(std::memory_order_relaxed));
  }
  if (finds_sizes) progress.set_num_entries_scanned(num_sizes);
  if (seconds <= 0 || num_loaded <= 0) return progress;
  const double rate = static_cast<double>(num_loaded) / seconds;
  progress.set_samples_per_second(rate);
  progress.set_bytes_per_second(static_cast<double>(num_bytes) / seconds);
  if (is_loading) {
    progress.set_eta_seconds(
        static_cast<double>(entry.dataset.num_samples() - num_loaded) / rate);
  }
  return progress;
}

}  // namespace

int DatasetEntry::CountFeeds() const {
  int count = 0;
  for (const auto& [uid, num_feeds] : num_feeds_of) count += num_feeds;
  return count;
}

bool DatasetEntry::IsReplaceable(const Caller& caller,
                                 const std::string& request) const {
  if (state != DatasetState::kFailed) return false;
  const bool is_same = !request.empty() && request == request_id &&
                       visibility().IsSeenBy(caller);
  return !kept_for.has_value() || is_same || caller.is_privileged ||
         caller.uid == *kept_for;
}

bool DatasetEntry::IsLost() const {
  const std::vector<ServedDevice*>& devices = placement.devices.devices;
  const auto has_failed = [](const ServedDevice* device) {
    return device->health->has_failed();
  };
  if (std::all_of(devices.begin(), devices.end(), has_failed)) return true;
  return !is_replicated && std::any_of(devices.begin(), devices.end(),
                                       [&](const ServedDevice* device) {
                                         return has_failed(device) &&
                                                BytesIn(*device->budget) > 0;
                                       });
}

absl::Status DatasetEntry::CheckReadable() const {
  if (replicas.empty() || replicas.front()->status().ok()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "dataset '", spec->name(), "': ", replicas.front()->status().message(),
      "; unload it, and load it again"));
}

bool DatasetEntry::IsUnused(bool for_restored) const {
  return state == DatasetState::kReady && !spec->pin() && holders.empty() &&
         num_feeds_of.empty() && comparisons.empty() &&
         !(for_restored && is_restored && !was_used);
}

int64_t DatasetEntry::BytesIn(const MemoryBudget& budget) const {
  const auto found = bytes_in.find(&budget);
  return found == bytes_in.end() ? 0 : found->second;
}

void DatasetEntry::SetSource(const OpenedSource& source,
                             const Placement& placed) {
  dataset.set_spec_id(source.spec_id);
  dataset.set_num_samples(source.reader->info().num_samples);
  classes = source.reader->info().class_names;
  placement = source.placement;
  dataset.set_device(placement.devices.Text());
  SetPlan(source.plan, placed);
  scan = nullptr;
  calls.clear();
  is_planned = true;
}

void DatasetEntry::SetPlan(const LoadPlan& plan, const Placement& placed) {
  dataset.clear_fields();
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    FieldToMessage(field.resident, dataset.add_fields());
  }
  dataset.set_resident_bytes(placed.resident_bytes());
  dataset.set_residency(placed.residency);
  is_replicated = placed.is_replicated;
  const std::vector<v1::Placement> placements = placed.Describe();
  *dataset.mutable_placements() = {placements.begin(), placements.end()};
  bytes_in.clear();
  for (const Placement::Part& part : placed.parts) {
    bytes_in[placement.BudgetOf(part.device)] += part.size_bytes;
  }
}

void DatasetEntry::SetReplicas(Replicas loaded) {
  replicas = std::move(loaded);
  const Dataset& first = *replicas.front();
  dataset.set_num_samples(first.num_samples());
  dataset.set_content_hash(first.content_hash());
  dataset.set_num_bad_samples(first.bad_samples().num_samples);
  dataset.clear_fields();
  for (const FieldSpec& field : first.fields()) {
    FieldToMessage(field, dataset.add_fields());
  }
}

void DatasetEntry::Cancel() {
  counters.Cancel();
  if (scan != nullptr) {
    scan->Cancel();
  }
  if (cancel) cancel();
}

void DatasetEntry::CancelComparisons() {
  for (PushComparison* const comparison : comparisons) comparison->Cancel();
  comparisons.clear();
}

DatasetInfo DatasetEntry::DescribeBriefly(absl::Duration now) const {
  DatasetInfo info = *this;
  v1::Dataset& to = info.dataset;
  to.set_state(static_cast<v1::DatasetState>(state));
  if (!error.ok()) to.set_error(PrintableUtf8(error.message()));
  for (int i = 0; i < to.placements_size(); ++i) {
    const ServedDevice& device =
        *placement.devices.devices[static_cast<size_t>(i)];
    to.mutable_placements(i)->set_error(PrintableUtf8(device.health->error()));
  }
  if (replicas.empty()) {
    to.set_num_bad_samples(
        counters.num_bad_samples.load(std::memory_order_relaxed));
  }
  to.set_num_feeds(CountFeeds());
  to.set_num_holders(static_cast<int>(holders.size()));
  *to.mutable_progress() = ProgressOf(*this, now);
  return info;
}

DatasetInfo DatasetEntry::Describe(absl::Duration now) const {
  DatasetInfo info = DescribeBriefly(now);
  v1::Dataset& to = info.dataset;
  to.mutable_class_names()->Assign(classes.begin(), classes.end());
  if (replicas.empty()) return info;
  BadSamplesToMessage(replicas.front()->bad_samples(),
                      to.mutable_bad_samples());
  std::vector<LoadNote> notes = replicas.front()->notes();
  if (!sibling_note.empty()) {
    AddNote(sibling_note, /*is_warning=*/true, notes);
  }
  NotesToMessage(notes, to.mutable_notes());
  return info;
}

}  // namespace datasetd
