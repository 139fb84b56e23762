#include "server/load/sample_scan.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/parallel_for.h"
#include "base/status_macros.h"
#include "server/dataset/load_cancelled.h"

namespace datasetd {
namespace {

constexpr size_t kMaxKeptBadSamples = 16 * kMaxListedBadSamples;

}  // namespace

SampleScan::SampleScan(SampleSource* source, const LoadPlan* plan,
                       const DecodeAccount& account)
    : source_(*source),
      plan_(*plan),
      account_(account),
      transforms_(MakeTransforms(source->info(), *plan)),
      sizes_(plan->fields.size()) {
  for (size_t f = 0; f < plan_.fields.size(); ++f) {
    if (!plan_.fields[f].needs_sizes) continue;
    sizes_[f] = std::make_shared<std::vector<ImageSize>>(
        static_cast<size_t>(source_.info().num_samples));
  }
  if (!plan_.is_encoded) {
    result_.largest_sample_bytes = ScratchBytes(SampleProbe());
  }
}

absl::Status SampleScan::Run(const std::atomic<bool>& is_cancelled,
                             std::atomic<int64_t>& num_scanned) {
  const int64_t num_samples = source_.info().num_samples;
  if (!plan_.is_encoded || num_samples == 0) {
    num_scanned.store(num_samples, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  source_.AllowSmallerImages(plan_.smaller_images);
  ParallelFor samples(
      {.thread_name = "headers", .num_threads = plan_.num_workers},
      [&]() -> ParallelFor::Body {
        return [&, raw = RawSample()](int64_t begin, int64_t end) mutable {
          for (int64_t i = begin; i < end; ++i) {
            if (is_cancelled.load(std::memory_order_relaxed) ||
                has_error_.load(std::memory_order_relaxed)) {
              return;
            }
            Look(i, raw);
            num_scanned.fetch_add(1, std::memory_order_relaxed);
          }
        };
      });
  DATASETD_RETURN_IF_ERROR(samples.status());
  samples.Start(num_samples);
  samples.Finish();
  DATASETD_RETURN_IF_ERROR(CheckNotCancelled(is_cancelled));
  MutexLock lock(&mutex_);
  std::sort(result_.bad.begin(), result_.bad.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return error_;
}

void SampleScan::Look(int64_t index, RawSample& raw) {
  SampleProbe probe;
  absl::Status status = Probe(index, raw, probe);
  const bool is_read = status.ok();
  if (is_read) status = SetSizes(index, probe);
  if (status.ok()) return;
  MutexLock lock(&mutex_);
  if (IsBadSample(status)) {
    ++result_.num_bad;
    if (result_.bad.size() < kMaxKeptBadSamples) {
      result_.bad.emplace_back(index, status);
    }
  } else if (!is_read) {
    error_.Update(LocatedStatus(source_, index, status));
    has_error_.store(true, std::memory_order_relaxed);
  } else if (result_.mismatch.ok() || index < result_.mismatch_index) {
    result_.mismatch = LocatedStatus(source_, index, status);
    result_.mismatch_index = index;
  }
}

absl::Status SampleScan::Probe(int64_t index, RawSample& raw,
                               SampleProbe& probe) {
  DecodeBudget::Share share(account_.budget, account_.uid);
  DATASETD_RETURN_IF_ERROR(share.Take(source_.Locate(index).size_bytes));
  DATASETD_RETURN_IF_ERROR(source_.Fetch(index, raw));
  DATASETD_RETURN_IF_ERROR(source_.Probe(index, raw, probe));
  const int64_t size_bytes =
      SaturatingSum(RawBytes(raw), probe.decode_bytes, ScratchBytes(probe));
  KeepAtMost(kMaxKeptProbeBytes, raw);
  DATASETD_RETURN_IF_ERROR(account_.budget->CheckSample(size_bytes));
  MutexLock lock(&mutex_);
  result_.largest_sample_bytes =
      std::max(result_.largest_sample_bytes, size_bytes);
  if (probe.has_unapplied_exif) ++result_.num_unapplied_exif;
  for (const ImageSize size : probe.sizes) {
    IncludeSize(size, result_.smallest, result_.largest);
  }
  return absl::OkStatus();
}

absl::Status SampleScan::SetSizes(int64_t index, const SampleProbe& probe) {
  absl::Span<const ImageSize> ragged = probe.sizes;
  for (size_t f = 0; f < transforms_.size(); ++f) {
    const ImageSize size = transforms_[f]->TakeSize(ragged);
    if (!transforms_[f]->source().is_ragged) continue;
    DATASETD_ASSIGN_OR_RETURN(const ImageSize resident,
                              transforms_[f]->ResidentSize(size));
    if (sizes_[f] != nullptr) {
      (*sizes_[f])[static_cast<size_t>(index)] = resident;
    }
  }
  return absl::OkStatus();
}

int64_t SampleScan::ScratchBytes(const SampleProbe& probe) const {
  int64_t bytes = 0;
  absl::Span<const ImageSize> ragged = probe.sizes;
  for (const std::unique_ptr<SampleTransform>& transform : transforms_) {
    const auto scratch_bytes =
        transform->ScratchBytes(transform->TakeSize(ragged));
    if (scratch_bytes.ok()) bytes = SaturatingAdd(bytes, *scratch_bytes);
  }
  return bytes;
}

std::vector<std::optional<SampleSizes>> SampleScan::sizes() const {
  std::vector<std::optional<SampleSizes>> sizes(sizes_.size());
  for (size_t f = 0; f < sizes_.size(); ++f) {
    if (sizes_[f] != nullptr) sizes[f] = sizes_[f];
  }
  return sizes;
}

}  // namespace datasetd
