// Progress and cancellation of a source scan.

#ifndef DATASETD_SERVER_LOAD_SOURCE_SCAN_H_
#define DATASETD_SERVER_LOAD_SOURCE_SCAN_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/sample_source.h"
#include "server/files/file_system.h"

namespace datasetd {

struct SourceScan {
  void Cancel() { is_cancelled.store(true, std::memory_order_relaxed); }

  // Number of directory entries, opened files and reads.
  std::atomic<int64_t> num_entries = 0;
  // Of a dry run: the source's samples, once it is open, and how many of their
  // headers were read.
  std::atomic<int64_t> num_samples = 0;
  std::atomic<int64_t> num_samples_scanned = 0;
  std::atomic<bool> is_cancelled = false;
  // Pays for the samples that are looked at to find what the source holds. Set
  // before it is opened.
  DecodeAccount account;
};

// Calls `open` with a view of `files` that counts into `scan`; `files` outlives
// the source.
//   CANCELLED  scan.is_cancelled was set before the source was open; checked
//              between files, directories and reads
absl::StatusOr<std::unique_ptr<SampleSource>> OpenScanned(
    const FileSystem& files, std::shared_ptr<SourceScan> scan,
    const std::function<absl::StatusOr<std::unique_ptr<SampleSource>>(
        const FileSystem& files)>& open);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SOURCE_SCAN_H_
