#include "server/core/decode_budget.h"

#include <algorithm>

namespace datasetd {

void DecodeBudget::Add(int64_t size_bytes) {
  used_bytes_ += size_bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
}

int64_t DecodeBudget::peak_bytes() const {
  MutexLock lock(&mutex_);
  return peak_bytes_;
}

void DecodeBudget::Share::TakeRaw(int64_t size_bytes) {
  DecodeBudget& budget = *budget_;
  const auto fits = [&]() ABSL_SHARED_LOCKS_REQUIRED(budget.mutex_) {
    return budget.used_bytes_ == 0 ||
           size_bytes <= budget.limit_bytes_ - budget.used_bytes_;
  };
  MutexLock lock(&budget.mutex_, Condition(&fits));
  budget.Add(size_bytes);
  size_bytes_ = size_bytes;
}

void DecodeBudget::Share::TakeDecoded(int64_t size_bytes) {
  DecodeBudget& budget = *budget_;
  // Where all wait with their raw bytes, one goes on.
  const auto fits = [&]() ABSL_SHARED_LOCKS_REQUIRED(budget.mutex_) {
    return budget.num_decoding_ == 0 ||
           size_bytes <= budget.limit_bytes_ - budget.used_bytes_;
  };
  MutexLock lock(&budget.mutex_, Condition(&fits));
  budget.Add(size_bytes);
  ++budget.num_decoding_;
  size_bytes_ += size_bytes;
  is_decoding_ = true;
}

DecodeBudget::Share::~Share() {
  MutexLock lock(&budget_->mutex_);
  budget_->used_bytes_ -= size_bytes_;
  if (is_decoding_) --budget_->num_decoding_;
}

}  // namespace datasetd
