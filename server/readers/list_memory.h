// Charges the lists that a source keeps: of its samples, and of its files.

#ifndef DATASETD_SERVER_READERS_LIST_MEMORY_H_
#define DATASETD_SERVER_READERS_LIST_MEMORY_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/dataset/decode_budget.h"
#include "server/files/file_system.h"

namespace datasetd {

// For one thread. Gives the memory back when it goes.
class ListMemory {
 public:
  explicit ListMemory(const DecodeAccount& account)
      : share_(account.lists, account.uid) {}

  // Before a vector has `size_bytes` of elements. Charges in steps.
  //   RESOURCE_EXHAUSTED  the user may not have so much
  absl::Status GrowTo(int64_t size_bytes) {
    if (size_bytes <= granted_bytes_) return absl::OkStatus();
    const int64_t step =
        std::clamp(granted_bytes_, kMinStepBytes, kMaxStepBytes);
    const int64_t wanted = std::max(size_bytes, granted_bytes_ + step);
    // Near the limit only what is needed.
    for (const int64_t bytes : {wanted, size_bytes}) {
      // A vector that grows has up to twice its elements.
      const auto is_granted = share_.TryGrowTo(2 * bytes);
      if (!is_granted.ok() || !*is_granted) continue;
      granted_bytes_ = bytes;
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "the lists of samples and files of this user's loads take more host "
        "memory than one user may have: ",
        size_bytes,
        " bytes of this one do not fit. Put more into a sample or file, wait "
        "until other loads have ended, or raise max_sample_memory_mib of the "
        "daemon's configuration"));
  }
  // Before `size_bytes` more are kept.
  absl::Status Add(int64_t size_bytes) {
    DATASETD_RETURN_IF_ERROR(GrowTo(added_bytes_ + size_bytes));
    added_bytes_ += size_bytes;
    return absl::OkStatus();
  }
  // When so much of what was added is kept no more. It stays charged, for what
  // is added later.
  void Drop(int64_t size_bytes) { added_bytes_ -= size_bytes; }

 private:
  static constexpr int64_t kMinStepBytes = 4 << 10;
  static constexpr int64_t kMaxStepBytes = 1 << 20;

  DecodeBudget::Share share_;
  int64_t granted_bytes_ = 0;
  int64_t added_bytes_ = 0;
};

// The memory of one element of a vector of FileInfo.
inline int64_t ListedBytes(const FileInfo& file) {
  return static_cast<int64_t>(sizeof(FileInfo) + file.path.capacity() + 1);
}

// Lists a directory, whose entries are added to `memory`.
inline absl::StatusOr<std::vector<FileInfo>> ListCharged(
    const FileSystem& files, const std::string& directory, ListMemory& memory) {
  return files.List(directory, [&memory](const FileInfo& entry) {
    return memory.Add(ListedBytes(entry));
  });
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_LIST_MEMORY_H_
