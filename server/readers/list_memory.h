// Charges the list of its samples that a source keeps.

#ifndef DATASETD_SERVER_READERS_LIST_MEMORY_H_
#define DATASETD_SERVER_READERS_LIST_MEMORY_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/dataset/decode_budget.h"

namespace datasetd {

// For one thread. Gives the memory back when it goes.
class ListMemory {
 public:
  explicit ListMemory(const DecodeAccount& account)
      : share_(account.lists, account.uid) {}

  // Before a vector has `size_bytes` of elements.
  //   RESOURCE_EXHAUSTED  the user may not have so much
  absl::Status GrowTo(int64_t size_bytes) {
    if (size_bytes <= granted_bytes_) return absl::OkStatus();
    const int64_t wanted = std::max(size_bytes, granted_bytes_ + kStepBytes);
    // A vector that grows has up to twice its elements.
    const auto is_granted = share_.TryGrowTo(2 * wanted);
    if (!is_granted.ok() || !*is_granted) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the lists of samples of this user's loads take more host memory "
          "than one user may have: ",
          size_bytes,
          " bytes of this one do not "
          "fit. Put more into a sample, wait until other loads have ended, or "
          "raise max_sample_memory_mib of the daemon's configuration"));
    }
    granted_bytes_ = wanted;
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kStepBytes = 1 << 20;

  DecodeBudget::Share share_;
  int64_t granted_bytes_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_LIST_MEMORY_H_
