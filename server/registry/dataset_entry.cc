#include "server/registry/dataset_entry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace datasetd {

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
  spec_id = source.spec_id;
  num_samples = source.reader->info().num_samples;
  classes = source.reader->info().class_names;
  placement = source.placement;
  device = placement.devices.Text();
  SetPlan(source.plan, placed);
  scan = nullptr;
  calls.clear();
  is_planned = true;
}

void DatasetEntry::SetPlan(const LoadPlan& plan, const Placement& placed) {
  fields.clear();
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    fields.push_back(field.resident);
  }
  resident_bytes = placed.resident_bytes();
  residency = placed.residency;
  is_replicated = placed.is_replicated;
  placements = placed.Describe();
  bytes_in.clear();
  for (const Placement::Part& part : placed.parts) {
    bytes_in[placement.BudgetOf(part.device)] += part.size_bytes;
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
  for (size_t i = 0; i < info.placements.size(); ++i) {
    info.placements[i].set_error(
        PrintableUtf8(placement.devices.devices[i]->health->error()));
  }
  if (!replicas.empty()) {
    const Dataset& dataset = *replicas.front();
    info.content_hash = dataset.content_hash();
    info.num_samples = dataset.num_samples();
    info.bad_samples.num_samples = dataset.bad_samples().num_samples;
  } else {
    info.bad_samples.num_samples =
        counters.num_bad_samples.load(std::memory_order_relaxed);
  }
  if (scan != nullptr) {
    info.num_entries_scanned =
        scan->num_entries.load(std::memory_order_relaxed);
  }
  info.num_feeds = CountFeeds();
  info.num_holders = static_cast<int>(holders.size());
  info.num_samples_loaded =
      counters.num_samples.load(std::memory_order_relaxed);
  const int64_t num_sizes = counters.num_sizes.load(std::memory_order_relaxed);
  const bool finds_sizes = num_sizes > 0 && info.num_samples_loaded == 0;
  if (finds_sizes) info.num_entries_scanned = num_sizes;
  info.is_scanning =
      state == DatasetState::kLoading && (!is_planned || finds_sizes);
  info.loaded_bytes = counters.num_bytes.load(std::memory_order_relaxed);
  info.elapsed = (state == DatasetState::kLoading ? now : finished) - started;
  return info;
}

DatasetInfo DatasetEntry::Describe(absl::Duration now) const {
  DatasetInfo info = DescribeBriefly(now);
  info.class_names = classes;
  if (!replicas.empty()) {
    info.bad_samples = replicas.front()->bad_samples();
    info.notes = replicas.front()->notes();
    if (!sibling_note.empty()) {
      AddNote(sibling_note, /*is_warning=*/true, info.notes);
    }
  }
  return info;
}

}  // namespace datasetd
