#include "server/registry/dataset_entry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/require.h"
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
      entry.work->counters.num_samples.load(std::memory_order_relaxed);
  const int64_t num_bytes =
      entry.work->counters.num_bytes.load(std::memory_order_relaxed);
  const int64_t num_sizes =
      entry.work->counters.num_sizes.load(std::memory_order_relaxed);
  const bool finds_sizes = num_sizes > 0 && num_loaded == 0;
  const bool is_loading = entry.state == DatasetState::kLoading;
  const double seconds = absl::ToDoubleSeconds(
      (is_loading ? now : entry.finished) - entry.started);
  progress.set_num_samples_loaded(num_loaded);
  progress.set_num_samples(entry.dataset.num_samples());
  progress.set_loaded_bytes(num_bytes);
  progress.set_resident_bytes(entry.dataset.resident_bytes());
  progress.set_elapsed_seconds(seconds);
  progress.set_is_scanning(is_loading && (!entry.is_planned() || finds_sizes));
  if (!entry.is_planned()) {
    progress.set_num_entries_scanned(
        entry.work->scan->num_entries.load(std::memory_order_relaxed));
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

int Holds::CountFeeds() const {
  int count = 0;
  for (const auto& [uid, num_feeds] : feeds) count += num_feeds;
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
  return !content.is_replicated &&
         std::any_of(
             devices.begin(), devices.end(), [&](const ServedDevice* device) {
               return has_failed(device) && BytesIn(*device->budget) > 0;
             });
}

absl::Status DatasetEntry::CheckReadable() const {
  const Replicas& replicas = content.replicas;
  if (replicas.empty() || replicas.front()->status().ok()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "dataset '", spec->name(), "': ", replicas.front()->status().message(),
      "; unload it, and load it again"));
}

bool DatasetEntry::IsUnused(bool for_restored) const {
  return stage == Stage::kReady && !spec->pin() && holds.sessions.empty() &&
         holds.feeds.empty() && content.comparisons.empty() &&
         !(for_restored && restoring.is_restored && !holds.was_used);
}

int64_t DatasetEntry::BytesIn(const MemoryBudget& budget) const {
  const auto found = memory.bytes_in.find(&budget);
  return found == memory.bytes_in.end() ? 0 : found->second;
}

uint8_t DatasetEntry::Change(StageEvent event) {
  const std::optional<StageChange> change = ChangeOf(stage, event);
  Require(change.has_value(), "an event of a dataset comes in its order");
  stage = change->to;
  state = StateOf(stage);
  content.is_ready->store(stage == Stage::kReady, std::memory_order_relaxed);
  return change->effects;
}

void DatasetEntry::SetSource(const OpenedSource& source,
                             const Placement& placed) {
  dataset.set_spec_id(source.spec_id);
  dataset.set_num_samples(source.reader->info().num_samples);
  content.classes = std::make_shared<const std::vector<std::string>>(
      source.reader->info().class_names);
  placement = source.placement;
  dataset.set_device(placement.devices.Text());
  SetPlan(source.plan, placed);
}

void DatasetEntry::SetPlan(const LoadPlan& plan, const Placement& placed) {
  dataset.clear_fields();
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    FieldToMessage(field.resident, dataset.add_fields());
  }
  dataset.set_resident_bytes(placed.resident_bytes());
  dataset.set_residency(placed.residency);
  content.is_replicated = placed.is_replicated;
  const std::vector<v1::Placement> placements = placed.Describe();
  *dataset.mutable_placements() = {placements.begin(), placements.end()};
  memory.bytes_in.clear();
  for (const Placement::Part& part : placed.parts) {
    memory.bytes_in[placement.BudgetOf(part.device)] += part.size_bytes;
  }
}

void DatasetEntry::SetReplicas(Replicas loaded) {
  content.replicas = std::move(loaded);
  const Dataset& first = *content.replicas.front();
  dataset.set_num_samples(first.num_samples());
  dataset.set_content_hash(first.content_hash());
  dataset.set_num_bad_samples(first.bad_samples().num_samples);
  dataset.clear_fields();
  for (const FieldSpec& field : first.fields()) {
    FieldToMessage(field, dataset.add_fields());
  }
}

std::vector<std::shared_ptr<const void>> DatasetEntry::TakeMemory() {
  std::vector<std::shared_ptr<const void>> taken(content.replicas.begin(),
                                                 content.replicas.end());
  content.replicas.clear();
  taken.push_back(std::make_shared<EntryMemory>(std::move(memory)));
  taken.push_back(std::make_shared<PreparedLoad>(std::move(work->prepared)));
  work->prepared = PreparedLoad();
  return taken;
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
  if (content.replicas.empty()) {
    to.set_num_bad_samples(
        work->counters.num_bad_samples.load(std::memory_order_relaxed));
  }
  to.set_num_feeds(holds.CountFeeds());
  to.set_num_holders(static_cast<int>(holds.sessions.size()));
  *to.mutable_progress() = ProgressOf(*this, now);
  return info;
}

DatasetInfo DatasetEntry::Describe(absl::Duration now) const {
  DatasetInfo info = DescribeBriefly(now);
  v1::Dataset& to = info.dataset;
  to.mutable_class_names()->Assign(content.classes->begin(),
                                   content.classes->end());
  const Replicas& replicas = content.replicas;
  if (replicas.empty()) return info;
  BadSamplesToMessage(replicas.front()->bad_samples(),
                      to.mutable_bad_samples());
  std::vector<LoadNote> notes = replicas.front()->notes();
  if (!content.sibling_note.empty()) {
    AddNote(content.sibling_note, /*is_warning=*/true, notes);
  }
  NotesToMessage(notes, to.mutable_notes());
  return info;
}

}  // namespace datasetd
