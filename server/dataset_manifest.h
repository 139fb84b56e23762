// The list of the datasets that clients have loaded, kept on disk for the next
// daemon.
//
// A change is written by a thread of the manifest, atomically; a file that
// cannot be written is an event, and tried again at the next change. A damaged
// one is set aside under another name. Thread-safe.

#ifndef DATASETD_SERVER_DATASET_MANIFEST_H_
#define DATASETD_SERVER_DATASET_MANIFEST_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datasetd/v1/manifest.pb.h"
#include "server/core/dataset_info.h"
#include "server/core/mutex.h"
#include "server/core/store_directory.h"

namespace datasetd {

class DatasetManifest {
 public:
  // For the log: what happened to the file, and why; on any thread.
  using Observer =
      std::function<void(const char* event, const absl::Status& status)>;

  // Reads what is there.
  //   DATA_LOSS, ...  the file cannot be read
  static absl::StatusOr<std::unique_ptr<DatasetManifest>> Open(
      std::unique_ptr<StoreDirectory> directory, Observer observer);
  // Writes what is not written.
  ~DatasetManifest();

  // The entries now.
  std::vector<v1::Manifest::Entry> Entries() const;

  // Waits for nothing. A dataset without its request, or with one of more than
  // 1 MiB, is not kept.
  void Add(const DatasetInfo& info);
  void Remove(const std::string& name);

  // Waits until all that was added and removed before was written, or tried;
  // false after `timeout`.
  bool AwaitWritten(absl::Duration timeout) const;

  uint64_t num_errors() const {
    return num_errors_.load(std::memory_order_relaxed);
  }

 private:
  DatasetManifest(std::unique_ptr<StoreDirectory> directory, Observer observer)
      : directory_(std::move(directory)), observer_(std::move(observer)) {}

  absl::Status Read();
  void RunWrites();
  absl::Status Write(const v1::Manifest& manifest);

  const std::unique_ptr<StoreDirectory> directory_;
  const Observer observer_;
  std::atomic<uint64_t> num_errors_ = 0;

  mutable Mutex mutex_;
  std::map<std::string, v1::Manifest::Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // Changes made, and those of them that the file has.
  uint64_t num_changes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_MANIFEST_H_
