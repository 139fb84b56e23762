// The registry's datasets by name, with visibility, limits and eviction order.
//
// Names are unique. For the registry's thread alone.

#ifndef DATASETD_SERVER_REGISTRY_DATASET_TABLE_H_
#define DATASETD_SERVER_REGISTRY_DATASET_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/dataset/caller.h"
#include "server/dataset/per_user_limit.h"
#include "server/registry/dataset_entry.h"

namespace datasetd {

class DatasetTable {
 public:
  using EntryPtr = std::shared_ptr<DatasetEntry>;

  // `max_datasets` 0: unlimited.
  DatasetTable(uint64_t max_datasets, PerUserLimit max_datasets_per_user)
      : max_datasets_(max_datasets),
        max_datasets_per_user_(max_datasets_per_user) {}

  // Null if there is none.
  EntryPtr Get(const std::string& name) const;
  EntryPtr GetById(uint64_t id) const;
  // NOT_FOUND if there is no such dataset that the caller may see.
  absl::StatusOr<EntryPtr> Find(const std::string& name,
                                const Caller& caller) const;
  // The error of Find; suggests names that the caller may see.
  absl::Status NotFound(const std::string& name, const Caller& caller) const;
  const std::map<std::string, EntryPtr>& entries() const { return entries_; }

  // Assigns an id to the entry and adds it, replacing an entry of the same
  // name.
  void Add(EntryPtr entry);
  // Removes the entry if its name still refers to it.
  void Remove(const DatasetEntry& entry);
  // Forgets the id of an entry that was replaced and has no feeds any more.
  void ForgetReplaced(const DatasetEntry& entry);
  // Adds an entry again that was replaced, unless its name is in use.
  void PutBack(EntryPtr entry);

  // The error for a name in use by another dataset.
  static absl::Status NameTaken(const DatasetEntry& present,
                                const Caller& caller);
  // The error for a load of the same spec whose files are others now.
  static absl::Status FilesChanged(const DatasetEntry& present);
  // The error for a dataset that is not there any more.
  static absl::Status Gone();
  // RESOURCE_EXHAUSTED if the caller or all users have too many datasets to
  // load another. `self` is not counted; may be null. If it is restored,
  // neither are those that are restored after it.
  absl::Status CheckLimits(const Caller& caller,
                           const DatasetEntry* self) const;

  // A warning if a READY dataset of the same format lies in the same directory
  // and shares a class with `entry`, but has other ones; else empty. Only of
  // datasets that whoever sees `entry` sees, too.
  std::string UnlikeSibling(const DatasetEntry& entry) const;

  // The bytes of a budget that TakeUnused could free.
  // `for_restored`: as DatasetEntry::IsUnused.
  int64_t UnusedBytes(const MemoryBudget& budget, bool for_restored) const;
  // Removes unused datasets that take of the budget, with all that they have
  // elsewhere, least recently used first, until they add up to `bytes` of it or
  // none is left.
  std::vector<EntryPtr> TakeUnused(const MemoryBudget& budget, int64_t bytes,
                                   bool for_restored);
  // Removes unused datasets that nobody has used since `time`.
  std::vector<EntryPtr> TakeUnusedSince(absl::Duration time);
  // Removes all but the latest failures of each user, and those that are kept.
  void ForgetOldFailures();

 private:
  const uint64_t max_datasets_;
  const PerUserLimit max_datasets_per_user_;
  std::map<std::string, EntryPtr> entries_;
  std::map<uint64_t, EntryPtr> by_id_;
  uint64_t next_id_ = 1;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_TABLE_H_
