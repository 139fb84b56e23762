// The list of datasets that clients have loaded, kept on disk for the next
// daemon, and the list of those that this daemon is reading for a restore.
//
// A user's entries have at most kMaxManifestBytesOfUser in total; further ones
// are not stored. A background thread writes changes atomically. A failed write
// is reported as an event and retried at the next change. Entries that are
// damaged are left out, and a copy of the file is kept; a file of which nothing
// can be read is renamed. Thread-safe.

#ifndef DATASETD_SERVER_MANIFEST_DATASET_MANIFEST_H_
#define DATASETD_SERVER_MANIFEST_DATASET_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/worker.h"
#include "datasetd/v1/manifest.pb.h"
#include "server/cache/restore_journal.h"
#include "server/dataset/dataset_info.h"
#include "server/files/store_directory.h"

namespace datasetd {

inline constexpr size_t kMaxManifestBytesOfUser = 1 << 20;

class DatasetManifest final : public RestoreJournal {
 public:
  // For the log: an event of the file and its reason; called on any thread.
  using Observer =
      std::function<void(const char* event, const absl::Status& status)>;

  // Reads the file and records the datasets that the previous daemon was
  // restoring when it ended.
  //   DATA_LOSS, ...  the file cannot be read
  static absl::StatusOr<std::unique_ptr<DatasetManifest>> Open(
      std::unique_ptr<StoreDirectory> directory, Observer observer);
  // Writes pending changes.
  ~DatasetManifest() override = default;

  // The current entries.
  std::vector<v1::Manifest::Entry> Entries() const;

  // Does not block. A READY dataset counts as restored successfully.
  void Add(const DatasetInfo& info);
  // Removes the entry if it belongs to this user.
  void Remove(const std::string& name, uint32_t owner_uid);

  void BeginRead(const std::string& name) override;
  void EndRead(const std::string& name) override;
  void EndRestore(const std::string& name) override;
  // Clears the journal for good. Call it when the process ends cleanly without
  // waiting for reads, so that the next daemon does not suspect them of having
  // ended it. Does not block; see AwaitWritten.
  void ForgetReading();

  // Tries a write that failed again, and blocks until all changes made before
  // were written, or failed; false after `timeout`.
  bool AwaitWritten(absl::Duration timeout);

 private:
  DatasetManifest(std::unique_ptr<StoreDirectory> directory, Observer observer)
      : directory_(std::move(directory)), observer_(std::move(observer)) {}

  absl::Status Read();
  absl::Status ReadJournal();
  void WriteJournal() ABSL_EXCLUSIVE_LOCKS_REQUIRED(journal_mutex_);
  v1::Manifest Message() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error if the entry exceeds its user's limit.
  absl::Status CheckSize(const v1::Manifest::Entry& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues a write of what was changed.
  void OnChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteChanges();
  absl::Status Write(const v1::Manifest& manifest);

  const std::unique_ptr<StoreDirectory> directory_;
  const Observer observer_;

  mutable Mutex mutex_;
  std::map<std::string, v1::Manifest::Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool is_changed_ ABSL_GUARDED_BY(mutex_) = false;  // since the last write
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;  // the last write
  // Held while the journal is written. Never held together with mutex_.
  Mutex journal_mutex_;
  std::set<std::string> reading_ ABSL_GUARDED_BY(journal_mutex_);
  bool is_forgotten_ ABSL_GUARDED_BY(journal_mutex_) = false;
  Worker writer_{"manifest"};
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_MANIFEST_DATASET_MANIFEST_H_
