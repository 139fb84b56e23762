// The list of the datasets that clients have loaded, kept on disk for the next
// daemon, and beside it which of them this daemon is reading to restore them.
//
// A user's entries have kMaxManifestBytesOfUser together: more are not kept.
//
// A change is written by a thread of the manifest, atomically; a file that
// cannot be written is an event, and tried again at the next change. A damaged
// one is set aside under another name. Thread-safe.

#ifndef DATASETD_SERVER_MANIFEST_DATASET_MANIFEST_H_
#define DATASETD_SERVER_MANIFEST_DATASET_MANIFEST_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "datasetd/v1/manifest.pb.h"
#include "server/cache/restore_journal.h"
#include "server/dataset/dataset_info.h"
#include "server/files/store_directory.h"

namespace datasetd {

inline constexpr size_t kMaxManifestBytesOfUser = 1 << 20;

class DatasetManifest final : public RestoreJournal {
 public:
  // For the log: what happened to the file, and why; on any thread.
  using Observer =
      std::function<void(const char* event, const absl::Status& status)>;

  // Reads what is there, and notes which datasets the daemon before was
  // restoring when it ended.
  //   DATA_LOSS, ...  the file cannot be read
  static absl::StatusOr<std::unique_ptr<DatasetManifest>> Open(
      std::unique_ptr<StoreDirectory> directory, Observer observer);
  // Writes what is not written.
  ~DatasetManifest() override;

  // The entries now.
  std::vector<v1::Manifest::Entry> Entries() const;

  // Waits for nothing. A dataset without its request is not kept. One that is
  // READY has been restored well, if it was.
  void Add(const DatasetInfo& info);
  void Remove(const std::string& name);

  void BeginRead(const std::string& name) override;
  void EndRead(const std::string& name) override;
  void EndRestore(const std::string& name) override;

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
  absl::Status ReadJournal();
  void WriteJournal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(journal_mutex_);
  v1::Manifest Message() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why an entry of a user would not fit.
  absl::Status CheckSize(const v1::Manifest::Entry& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
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
  // Held while the journal is written. Never together with mutex_.
  Mutex journal_mutex_;
  std::set<std::string> reading_ ABSL_GUARDED_BY(journal_mutex_);
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_MANIFEST_DATASET_MANIFEST_H_
