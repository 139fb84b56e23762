#include "server/registry/dataset_table.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

constexpr size_t kMaxNameLength = 128;
constexpr size_t kMaxFailuresPerUser = 64;
// Names listed in an error; the others are counted.
constexpr size_t kMaxNames = 20;

// Where the samples of a load lie, and the directory that this is in.
std::string RootOf(const v1::DatasetSpec& spec) {
  return spec.split().empty() ? spec.path()
                              : absl::StrCat(spec.path(), "/", spec.split());
}
std::string ParentOf(const std::string& root) {
  return root.substr(0, root.rfind('/') + 1);
}

}  // namespace

DatasetTable::EntryPtr DatasetTable::Get(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second;
}

DatasetTable::EntryPtr DatasetTable::GetById(uint64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

absl::StatusOr<DatasetTable::EntryPtr> DatasetTable::Find(
    const std::string& name, const Caller& caller) const {
  EntryPtr entry = Get(name);
  if (entry == nullptr || !entry->visibility().IsSeenBy(caller)) {
    return NotFound(name, caller);
  }
  return entry;
}

absl::Status DatasetTable::NotFound(const std::string& name,
                                    const Caller& caller) const {
  std::string names;
  size_t num_seen = 0;
  for (const auto& [other, entry] : entries_) {
    if (!entry->visibility().IsSeenBy(caller) || ++num_seen > kMaxNames) {
      continue;
    }
    absl::StrAppend(&names, names.empty() ? "" : ", ", other);
  }
  if (num_seen > kMaxNames) {
    absl::StrAppend(&names, " and ", num_seen - kMaxNames, " more");
  }
  return absl::NotFoundError(absl::StrCat(
      "no dataset '", name.substr(0, kMaxNameLength), "'; there ",
      names.empty() ? std::string("is none") : absl::StrCat("are: ", names)));
}

void DatasetTable::Add(EntryPtr entry) {
  entry->id = next_id_++;
  EntryPtr& place = entries_[entry->spec->name()];
  // Its feeds may still have to end.
  if (place != nullptr && place->holds.feeds.empty()) by_id_.erase(place->id);
  if (place != nullptr) entry->kept_for = place->kept_for;
  // Failed tries of others do not pile up on what is kept.
  entry->replaced =
      place != nullptr && place->replaced != nullptr ? place->replaced : place;
  place = entry;
  by_id_[entry->id] = std::move(entry);
}

void DatasetTable::Remove(const DatasetEntry& entry) {
  const auto found = entries_.find(entry.spec->name());
  if (found == entries_.end() || found->second.get() != &entry) return;
  by_id_.erase(entry.id);
  entries_.erase(found);
}

void DatasetTable::ForgetReplaced(const DatasetEntry& entry) {
  if (Get(entry.spec->name()).get() != &entry) by_id_.erase(entry.id);
}

void DatasetTable::PutBack(EntryPtr entry) {
  if (entries_.emplace(entry->spec->name(), entry).second) {
    by_id_[entry->id] = std::move(entry);
  }
}

absl::Status DatasetTable::NameTaken(const DatasetEntry& present,
                                     const Caller& caller) {
  const std::string& name = present.spec->name();
  if (!present.visibility().IsSeenBy(caller)) {
    return absl::AlreadyExistsError(
        absl::StrCat("the name '", name, "' is taken; choose another"));
  }
  if (present.state == DatasetState::kUnloading) {
    return absl::FailedPreconditionError(
        absl::StrCat("dataset '", name,
                     "' is being unloaded; load it again when its feeds "
                     "have ended"));
  }
  if (present.state == DatasetState::kFailed) {
    return absl::AlreadyExistsError(absl::StrCat(
        "dataset '", name, "' of uid ", present.owner.uid,
        " cannot be read now, and the next start of the daemon loads it again: "
        "choose another name, or have it unloaded"));
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "dataset '", name, "' is there with another spec (",
      present.spec->format(), " from ",
      present.spec->path().empty() ? "a client" : present.spec->path().c_str(),
      " on ", present.dataset.device(), ", spec id ",
      present.dataset.spec_id().empty() ? "not known yet"
                                        : present.dataset.spec_id().c_str(),
      "); choose another name, get it as it is, or unload it"));
}

absl::Status DatasetTable::Gone() {
  return absl::NotFoundError(
      "the dataset was unloaded, or its load was cancelled, meanwhile");
}

absl::Status DatasetTable::FilesChanged(const DatasetEntry& present) {
  return absl::AlreadyExistsError(absl::StrCat(
      "dataset '", present.spec->name(), "': files of ", present.spec->path(),
      " were added, removed or changed since it was loaded, and it is still "
      "there with the old ones. A Dataset that is open keeps them, as `ds` of "
      "an earlier cell: call ds.close() (or unload it) and load again, or load "
      "the files of now under another name (name=)"));
}

absl::Status DatasetTable::CheckLimits(const Caller& caller,
                                       const DatasetEntry* self) const {
  if (caller.session_id == 0) return absl::OkStatus();
  uint64_t total = 0;
  uint64_t count = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry.get() == self || entry->owner.session_id == 0) continue;
    // A restored dataset does not count for those restored before it.
    if (self != nullptr && self->restoring.is_restored &&
        entry->restoring.is_restored && entry->state != DatasetState::kReady &&
        entry->id > self->id) {
      continue;
    }
    ++total;
    if (entry->owner.uid == caller.uid) ++count;
  }
  const uint64_t limit = max_datasets_per_user_.Of(caller.is_privileged);
  if (limit != 0 && count >= limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "uid ", caller.uid, " has loaded ", count,
        " datasets, and one user may have ", limit,
        "; unload one, or raise user_limits.max_datasets in the daemon's "
        "configuration"));
  }
  if (max_datasets_ == 0 || total < max_datasets_) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "there are ", total, " datasets that clients loaded, and there may be ",
      max_datasets_,
      "; unload some, or raise max_datasets in the daemon's configuration"));
}

std::string DatasetTable::UnlikeSibling(const DatasetEntry& entry) const {
  const std::string root = RootOf(*entry.spec);
  const std::set<absl::string_view> own(entry.content.classes->begin(),
                                        entry.content.classes->end());
  for (const auto& [name, other] : entries_) {
    const std::string theirs = RootOf(*other->spec);
    if (other->state != DatasetState::kReady ||
        other->spec->format() != entry.spec->format() || theirs == root ||
        ParentOf(theirs) != ParentOf(root) ||
        *other->content.classes == *entry.content.classes ||
        !other->visibility().IsSeenBy(entry.owner) ||
        (other->spec->private_() && !entry.spec->private_())) {
      continue;
    }
    const auto is_shared = [&](const std::string& c) {
      return own.contains(c);
    };
    const std::vector<std::string>& classes = *other->content.classes;
    if (std::none_of(classes.begin(), classes.end(), is_shared)) continue;
    return absl::StrCat(
        "dataset '", name, "', ", theirs,
        ", has other classes than this one beside it, so that their labels "
        "differ: load both with the same classes=, as classes='",
        name, "'");
  }
  return "";
}

int64_t DatasetTable::UnusedBytes(const MemoryBudget& budget,
                                  bool for_restored) const {
  int64_t bytes = 0;
  for (const auto& [name, entry] : entries_) {
    if (entry->IsUnused(for_restored)) bytes += entry->BytesIn(budget);
  }
  return bytes;
}

std::vector<DatasetTable::EntryPtr> DatasetTable::TakeUnused(
    const MemoryBudget& budget, int64_t bytes, bool for_restored) {
  std::vector<EntryPtr> unused;
  for (const auto& [name, entry] : entries_) {
    if (entry->IsUnused(for_restored) && entry->BytesIn(budget) > 0) {
      unused.push_back(entry);
    }
  }
  std::sort(unused.begin(), unused.end(), [](const auto& a, const auto& b) {
    return a->holds.last_used < b->holds.last_used;
  });
  int64_t freed = 0;
  size_t num_taken = 0;
  while (num_taken < unused.size() && freed < bytes) {
    freed += unused[num_taken]->BytesIn(budget);
    Remove(*unused[num_taken]);
    ++num_taken;
  }
  unused.resize(num_taken);
  return unused;
}

std::vector<DatasetTable::EntryPtr> DatasetTable::TakeUnusedSince(
    absl::Duration time) {
  std::vector<EntryPtr> unused;
  for (const auto& [name, entry] : entries_) {
    if (entry->IsUnused(/*for_restored=*/false) &&
        entry->holds.last_used <= time) {
      unused.push_back(entry);
    }
  }
  for (const EntryPtr& entry : unused) Remove(*entry);
  return unused;
}

void DatasetTable::ForgetOldFailures() {
  std::map<uint32_t, std::vector<EntryPtr>> failures;
  for (const auto& [name, entry] : entries_) {
    if (entry->state == DatasetState::kFailed && !entry->kept_for.has_value()) {
      failures[entry->owner.uid].push_back(entry);
    }
  }
  for (auto& [uid, entries] : failures) {
    if (entries.size() <= kMaxFailuresPerUser) continue;
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return a->finished < b->finished;
    });
    for (size_t i = 0; i + kMaxFailuresPerUser < entries.size(); ++i) {
      entries[i]->Change(StageEvent::kForgotten);
      Remove(*entries[i]);
    }
  }
}

}  // namespace datasetd
