#include "server/load/sample_scan.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/dataset/load_cancelled.h"
#include "server/load/bad_sample_filter.h"

namespace datasetd {

SampleScan::SampleScan(const SampleSource* source, int num_threads,
                       const DecodeAccount& account,
                       const std::atomic<bool>* is_cancelled,
                       OnSample on_sample, OnBadSample on_bad_sample)
    : source_(*source),
      account_(account),
      is_cancelled_(*is_cancelled),
      on_sample_(std::move(on_sample)),
      on_bad_sample_(std::move(on_bad_sample)),
      samples_({.thread_name = "headers", .num_threads = num_threads},
               [this]() -> ParallelFor::Body {
                 return [this, raw = RawSample()](int64_t begin,
                                                  int64_t end) mutable {
                   for (int64_t i = begin; i < end; ++i) Look(i, raw);
                 };
               }) {
  MutexLock lock(&mutex_);
  const int64_t num_samples = source_.info().num_samples;
  has_ended_ = num_samples == 0 || !samples_.status().ok();
  if (has_ended_) {
    error_ = samples_.status();
  } else {
    samples_.Start(num_samples);
  }
}

bool SampleScan::Await(absl::Duration timeout) {
  has_ended_ = has_ended_ || samples_.Finish(timeout);
  return has_ended_;
}

absl::Status SampleScan::error() const {
  MutexLock lock(&mutex_);
  return error_;
}

void SampleScan::Look(int64_t index, RawSample& raw) {
  if (is_cancelled_.load(std::memory_order_relaxed) ||
      has_error_.load(std::memory_order_relaxed)) {
    return;
  }
  const absl::Status status = Probe(index, raw);
  num_scanned_.fetch_add(1, std::memory_order_relaxed);
  if (status.ok()) return;
  if (IsBadSample(status)) return on_bad_sample_(index, status);
  MutexLock lock(&mutex_);
  error_.Update(LocatedStatus(source_, index, status));
  has_error_.store(true, std::memory_order_relaxed);
}

absl::Status SampleScan::Probe(int64_t index, RawSample& raw) {
  DecodeBudget::Share share(account_.budget, account_.uid);
  DATASETD_RETURN_IF_ERROR(share.Take(source_.Locate(index).size_bytes));
  DATASETD_RETURN_IF_ERROR(source_.Fetch(index, raw));
  SampleProbe probe;
  DATASETD_RETURN_IF_ERROR(source_.Probe(index, raw, probe));
  const int64_t size_bytes = SaturatingAdd(RawBytes(raw), probe.decode_bytes);
  KeepAtMost(kMaxKeptProbeBytes, raw);
  return on_sample_(index, probe, size_bytes);
}

SampleSizesTable::SampleSizesTable(const SourceInfo& source,
                                   const LoadPlan& plan,
                                   const SampleTransforms* transforms)
    : transforms_(*transforms), sizes_(plan.fields.size()) {
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    if (!plan.fields[f].needs_sizes) continue;
    sizes_[f] = std::make_shared<std::vector<ImageSize>>(
        static_cast<size_t>(source.num_samples));
  }
}

absl::Status SampleSizesTable::Set(int64_t sample, const SampleProbe& probe) {
  absl::Span<const ImageSize> ragged = probe.sizes;
  for (size_t f = 0; f < sizes_.size(); ++f) {
    const ImageSize size = transforms_[f]->TakeSize(ragged);
    if (sizes_[f] == nullptr) continue;
    DATASETD_ASSIGN_OR_RETURN((*sizes_[f])[static_cast<size_t>(sample)],
                              transforms_[f]->ResidentSize(size));
  }
  return absl::OkStatus();
}

std::vector<std::optional<SampleSizes>> SampleSizesTable::sizes() const {
  std::vector<std::optional<SampleSizes>> sizes(sizes_.size());
  for (size_t f = 0; f < sizes_.size(); ++f) {
    if (sizes_[f] != nullptr) sizes[f] = sizes_[f];
  }
  return sizes;
}

absl::StatusOr<std::vector<std::optional<SampleSizes>>> FindSampleSizes(
    const SampleSource& source, const LoadPlan& plan,
    const DecodeAccount& account, const std::atomic<bool>& is_cancelled,
    std::atomic<int64_t>* num_sizes) {
  const SampleTransforms transforms = MakeTransforms(source.info(), plan);
  SampleSizesTable table(source.info(), plan, &transforms);
  SampleScan scan(
      &source, plan.num_workers, account, &is_cancelled,
      [&](int64_t index, const SampleProbe& probe,
          int64_t size_bytes) -> absl::Status {
        if (num_sizes != nullptr) {
          num_sizes->fetch_add(1, std::memory_order_relaxed);
        }
        DATASETD_RETURN_IF_ERROR(account.budget->CheckSample(size_bytes));
        return table.Set(index, probe);
      },
      [](int64_t, const absl::Status&) {});
  scan.Await(absl::InfiniteDuration());
  DATASETD_RETURN_IF_ERROR(CheckNotCancelled(is_cancelled));
  DATASETD_RETURN_IF_ERROR(scan.error());
  return table.sizes();
}

}  // namespace datasetd
