#include "server/core/dataset_entry.h"

namespace datasetd {

bool DatasetEntry::IsSeenBy(const Caller& caller) const {
  return !spec.is_private || caller.is_privileged || caller.session_id == 0 ||
         caller.uid == owner.uid;
}

bool DatasetEntry::IsUnused() const {
  return state == DatasetState::kReady && !spec.is_pinned && holders.empty() &&
         num_feeds == 0;
}

void DatasetEntry::SetSource(const OpenedSource& source) {
  spec = source.spec;
  spec_id = source.spec_id;
  num_samples = source.reader->info().num_samples;
  class_names = source.reader->info().class_names;
  SetPlan(source.plan);
  scan = nullptr;
  is_opened = true;
}

void DatasetEntry::SetPlan(const LoadPlan& plan) {
  fields.clear();
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    fields.push_back(field.resident);
  }
  resident_bytes = plan.resident_bytes;
}

void DatasetEntry::Cancel() {
  counters.Cancel();
  if (scan != nullptr) {
    scan->is_cancelled.store(true, std::memory_order_relaxed);
  }
  if (cancel) cancel();
}

DatasetInfo DatasetEntry::Describe(absl::Duration now) const {
  DatasetInfo info;
  info.spec = spec;
  info.state = state;
  info.error = error;
  info.owner = owner;
  info.num_samples = num_samples;
  info.fields = fields;
  info.class_names = class_names;
  info.resident_bytes = resident_bytes;
  info.spec_id = spec_id;
  if (dataset != nullptr) {
    info.content_hash = dataset->content_hash();
    info.num_samples = dataset->num_samples();
    info.bad_samples = dataset->bad_samples();
  } else {
    info.bad_samples.num_samples =
        counters.num_bad_samples.load(std::memory_order_relaxed);
  }
  info.is_scanning = state == DatasetState::kLoading && !is_opened;
  if (scan != nullptr) {
    info.num_entries_scanned =
        scan->num_entries.load(std::memory_order_relaxed);
  }
  info.num_feeds = num_feeds;
  info.num_holders = static_cast<int>(holders.size());
  info.num_samples_loaded =
      counters.num_samples.load(std::memory_order_relaxed);
  info.loaded_bytes = counters.num_bytes.load(std::memory_order_relaxed);
  info.elapsed =
      (state == DatasetState::kLoading ? now : finished) - started;
  return info;
}

}  // namespace datasetd
