#include "server/core/dataset_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

constexpr size_t kMaxNameLength = 128;
constexpr size_t kMaxFailures = 64;

}  // namespace

DatasetTable::EntryPtr DatasetTable::Get(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second;
}

DatasetTable::EntryPtr DatasetTable::GetById(uint64_t id) const {
  for (const auto& [name, entry] : entries_) {
    if (entry->id == id) return entry;
  }
  return nullptr;
}

absl::StatusOr<DatasetTable::EntryPtr> DatasetTable::Find(
    const std::string& name, const Caller& caller) const {
  EntryPtr entry = Get(name);
  if (entry == nullptr || !entry->IsSeenBy(caller)) {
    return NotFound(name, caller);
  }
  return entry;
}

absl::Status DatasetTable::NotFound(const std::string& name,
                                    const Caller& caller) const {
  std::string names;
  for (const auto& [other, entry] : entries_) {
    if (!entry->IsSeenBy(caller)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", other);
  }
  return absl::NotFoundError(absl::StrCat(
      "no dataset '", name.substr(0, kMaxNameLength), "'; there ",
      names.empty() ? std::string("is none") : absl::StrCat("are: ", names)));
}

void DatasetTable::Add(EntryPtr entry) {
  entry->id = next_id_++;
  const std::string& name = entry->spec.name;
  entries_[name] = std::move(entry);
}

void DatasetTable::Remove(const DatasetEntry& entry) {
  const auto found = entries_.find(entry.spec.name);
  if (found != entries_.end() && found->second.get() == &entry) {
    entries_.erase(found);
  }
}

absl::Status DatasetTable::NameTaken(const DatasetEntry& present,
                                     const Caller& caller) {
  const std::string& name = present.spec.name;
  if (!present.IsSeenBy(caller)) {
    return absl::AlreadyExistsError(
        absl::StrCat("the name '", name, "' is taken; choose another"));
  }
  if (present.state == DatasetState::kUnloading) {
    return absl::FailedPreconditionError(
        absl::StrCat("dataset '", name,
                     "' is being unloaded; load it again when its feeds "
                     "have ended"));
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "dataset '", name, "' is there with another spec (", present.spec.format,
      " from ",
      present.spec.path.empty() ? "a client" : present.spec.path.c_str(),
      " on ", present.spec.device, ", spec id ",
      present.spec_id.empty() ? "not known yet" : present.spec_id.c_str(),
      "), or its files have changed; choose another name, get it as it is, or "
      "unload it"));
}

absl::Status DatasetTable::CheckUserLimit(const Caller& caller,
                                          const DatasetEntry* self) const {
  const int limit = max_datasets_per_user_;
  if (limit == 0 || caller.session_id == 0) return absl::OkStatus();
  int count = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry.get() != self && entry->owner.session_id != 0 &&
        entry->owner.uid == caller.uid) {
      ++count;
    }
  }
  if (count < limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "uid ", caller.uid, " has loaded ", count,
      " datasets, and one user may have ", limit,
      "; unload one, or raise user_limits.max_datasets in the daemon's "
      "configuration"));
}

std::vector<DatasetTable::EntryPtr> DatasetTable::TakeUnused(
    const std::string& device, int64_t bytes) {
  std::vector<EntryPtr> unused;
  for (const auto& [name, entry] : entries_) {
    if (entry->spec.device == device && entry->IsUnused()) {
      unused.push_back(entry);
    }
  }
  std::sort(unused.begin(), unused.end(), [](const auto& a, const auto& b) {
    return a->last_used < b->last_used;
  });
  int64_t freed = 0;
  size_t num_taken = 0;
  while (num_taken < unused.size() && freed < bytes) {
    freed += unused[num_taken]->resident_bytes;
    Remove(*unused[num_taken]);
    ++num_taken;
  }
  unused.resize(num_taken);
  return unused;
}

void DatasetTable::ForgetOldFailures() {
  std::vector<EntryPtr> failures;
  for (const auto& [name, entry] : entries_) {
    if (entry->state == DatasetState::kFailed) failures.push_back(entry);
  }
  if (failures.size() <= kMaxFailures) return;
  std::sort(failures.begin(), failures.end(), [](const auto& a, const auto& b) {
    return a->finished < b->finished;
  });
  for (size_t i = 0; i + kMaxFailures < failures.size(); ++i) {
    Remove(*failures[i]);
  }
}

}  // namespace datasetd
