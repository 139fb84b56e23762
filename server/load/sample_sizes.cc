#include "server/load/sample_sizes.h"

#include <thread>
#include <utility>

#include "base/background_thread.h"
#include "base/checked_math.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "server/load/bad_sample_filter.h"

namespace datasetd {

SampleSizesTable::SampleSizesTable(const SourceInfo& source,
                                   const LoadPlan& plan)
    : num_fields_(plan.fields.size()) {
  size_t probe_index = 0;
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    if (!source.fields[f].is_ragged) continue;
    const LoadPlan::FieldPlan& field = plan.fields[f];
    if (field.needs_sizes) {
      fields_.push_back({.index = f,
                         .probe_index = probe_index,
                         .transform = std::make_unique<SampleTransform>(
                             source.fields[f], Narrow<int>(f), field.ops,
                             field.resident, plan.limits.transforms),
                         .sizes = std::make_shared<std::vector<ImageSize>>(
                             static_cast<size_t>(source.num_samples))});
    }
    ++probe_index;
  }
}

absl::Status SampleSizesTable::Set(int64_t sample, const SampleProbe& probe) {
  for (Field& field : fields_) {
    DATASETD_ASSIGN_OR_RETURN(
        (*field.sizes)[static_cast<size_t>(sample)],
        field.transform->ResidentSize(probe.sizes[field.probe_index]));
  }
  return absl::OkStatus();
}

std::vector<std::optional<SampleSizes>> SampleSizesTable::sizes() const {
  std::vector<std::optional<SampleSizes>> sizes(num_fields_);
  for (const Field& field : fields_) {
    sizes[field.index] = SampleSizes(field.sizes);
  }
  return sizes;
}

absl::StatusOr<std::vector<std::optional<SampleSizes>>> FindSampleSizes(
    const SampleSource& source, const LoadPlan& plan,
    const DecodeAccount& account, const std::atomic<bool>& is_cancelled) {
  const int64_t num_samples = source.info().num_samples;
  SampleSizesTable table(source.info(), plan);
  std::atomic<int64_t> next = 0;
  Mutex mutex;
  absl::Status error;  // guarded by mutex
  std::atomic<bool> has_error = false;
  const auto look = [&](int64_t index, RawSample& raw) -> absl::Status {
    DecodeBudget::Share share(account.budget, account.uid);
    DATASETD_RETURN_IF_ERROR(share.Take(source.Locate(index).size_bytes));
    DATASETD_RETURN_IF_ERROR(source.ReadRaw(index, raw));
    SampleProbe probe;
    DATASETD_RETURN_IF_ERROR(source.Probe(index, raw, probe));
    const int64_t size_bytes = SaturatingAdd(RawBytes(raw), probe.decode_bytes);
    KeepAtMost(kMaxKeptProbeBytes, raw);
    DATASETD_RETURN_IF_ERROR(account.budget->CheckSample(size_bytes));
    return table.Set(index, probe);
  };
  const auto scan = [&] {
    BecomeBackgroundThread("sizes");
    RawSample raw;
    while (!is_cancelled.load(std::memory_order_relaxed) &&
           !has_error.load(std::memory_order_relaxed)) {
      const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= num_samples) return;
      const absl::Status status = look(index, raw);
      if (status.ok() || IsBadSample(status)) continue;
      MutexLock lock(&mutex);
      error.Update(LocatedStatus(source, index, status));
      has_error.store(true, std::memory_order_relaxed);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < plan.num_decode_threads; ++i) threads.emplace_back(scan);
  for (std::thread& thread : threads) thread.join();
  if (is_cancelled.load(std::memory_order_relaxed)) {
    return absl::CancelledError("the load was cancelled");
  }
  DATASETD_RETURN_IF_ERROR(error);
  return table.sizes();
}

}  // namespace datasetd
