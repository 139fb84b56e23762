// The look at a source's files when it is opened, which may be long: how far it
// is, and whether it is still wanted.

#ifndef DATASETD_SERVER_LOAD_SOURCE_SCAN_H_
#define DATASETD_SERVER_LOAD_SOURCE_SCAN_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/dataset/sample_source.h"
#include "server/files/file_system.h"
#include "server/load/decode_budget.h"

namespace datasetd {

struct SourceScan {
  // Entries of directories, files that were opened, and reads.
  std::atomic<int64_t> num_entries = 0;
  std::atomic<bool> is_cancelled = false;
  // Pays for the samples that are looked at to find what the source holds. Set
  // before it is opened.
  DecodeAccount account;
};

// What `open` makes of `files`, which outlive it. Counts while it is opened.
//   CANCELLED  scan.is_cancelled was set before it was open; looked at between
//              files, directories and reads
absl::StatusOr<std::unique_ptr<SampleSource>> OpenScanned(
    const FileSystem& files, std::shared_ptr<SourceScan> scan,
    const std::function<absl::StatusOr<std::unique_ptr<SampleSource>>(
        const FileSystem& files)>& open);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SOURCE_SCAN_H_
