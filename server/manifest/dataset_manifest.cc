#include "server/manifest/dataset_manifest.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "server/manifest/manifest_format.h"

namespace datasetd {
namespace {

constexpr char kFileName[] = "datasets.manifest";
constexpr char kDamagedName[] = "datasets.manifest.damaged";
constexpr char kJournalName[] = "restoring";
constexpr char kJournalTitle[] = "datasetd restoring 1";
constexpr int64_t kMaxJournalBytes = 1 << 20;

absl::Span<const uint8_t> BytesOf(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                             text.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<DatasetManifest>> DatasetManifest::Open(
    std::unique_ptr<StoreDirectory> directory, Observer observer) {
  std::unique_ptr<DatasetManifest> manifest(
      new DatasetManifest(std::move(directory), std::move(observer)));
  DATASETD_RETURN_IF_ERROR(manifest->Read());
  DATASETD_RETURN_IF_ERROR(manifest->ReadJournal());
  return manifest;
}

absl::Status DatasetManifest::Read() {
  const auto data = ReadStored(*directory_, kFileName,
                               static_cast<int64_t>(kMaxManifestBytes));
  if (absl::IsNotFound(data.status())) return absl::OkStatus();
  absl::Status status = data.status();
  if (status.ok()) {
    const auto decoded = DecodeManifest(*data);
    if (decoded.ok()) {
      MutexLock lock(&mutex_);
      for (const v1::Manifest::Entry& entry : decoded->manifest.entries()) {
        entries_[entry.spec().name()] = entry;
      }
      if (decoded->damage.ok()) return absl::OkStatus();
      observer_("damaged in part, a copy is kept", decoded->damage);
      const absl::Status kept =
          WriteStored(*directory_, kDamagedName, BytesOf(*data));
      if (!kept.ok()) observer_("not written", kept);
      // The next write replaces what was damaged.
      OnChanged();
      return absl::OkStatus();
    }
    status = decoded.status();
  } else if (!absl::IsDataLoss(status)) {
    return status;  // of the system; the file may be intact
  }
  observer_("damaged, set aside", status);
  return directory_->Rename(kFileName, kDamagedName);
}

absl::Status DatasetManifest::ReadJournal() {
  const auto data = ReadStored(*directory_, kJournalName, kMaxJournalBytes);
  if (absl::IsNotFound(data.status())) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(data.status());
  std::vector<std::string> names = absl::StrSplit(*data, '\n');
  if (names.front() != kJournalTitle) return absl::OkStatus();
  names.erase(names.begin());
  v1::Manifest manifest;
  std::vector<std::string> interrupted;
  {
    MutexLock lock(&mutex_);
    for (const std::string& name : names) {
      if (entries_.count(name) != 0) interrupted.push_back(name);
    }
    uint32_t last_end = 0;
    for (const auto& [name, entry] : entries_) {
      last_end = std::max(last_end, entry.shared_end());
    }
    for (const std::string& name : interrupted) {
      v1::Manifest::Entry& entry = entries_[name];
      entry.set_is_suspect(true);
      if (interrupted.size() == 1) {
        entry.set_num_interrupted(entry.num_interrupted() + 1);
      } else {
        entry.set_shared_end(last_end + 1);
      }
    }
    manifest = Message();
  }
  if (interrupted.empty()) return absl::OkStatus();
  // Write the manifest first: a crash in between counts an interruption twice
  // rather than never.
  absl::Status written = Write(manifest);
  observer_("was restoring when it ended",
            absl::AbortedError(absl::StrJoin(interrupted, ", ")));
  if (written.ok()) {
    written = WriteStored(*directory_, kJournalName, BytesOf(kJournalTitle));
  }
  if (written.ok()) return absl::OkStatus();
  // A full disk does not keep the daemon from starting. The suspects are known
  // in memory, and written with the next change.
  observer_("not written", written);
  return absl::OkStatus();
}

void DatasetManifest::BeginRead(const std::string& name) {
  MutexLock lock(&journal_mutex_);
  reading_.insert(name);
  WriteJournal();
}

void DatasetManifest::EndRead(const std::string& name) {
  MutexLock lock(&journal_mutex_);
  reading_.erase(name);
  WriteJournal();
}

void DatasetManifest::EndRestore(const std::string& name) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  v1::Manifest::Entry& entry = found->second;
  if (entry.num_interrupted() == 0 && !entry.is_suspect()) return;
  entry.clear_num_interrupted();
  entry.clear_is_suspect();
  entry.clear_shared_end();
  OnChanged();
}

void DatasetManifest::ForgetReading() {
  writer_.Run([this] {
    MutexLock lock(&journal_mutex_);
    reading_.clear();
    WriteJournal();
    is_forgotten_ = true;
  });
}

void DatasetManifest::WriteJournal() {
  if (is_forgotten_) return;
  const std::string data =
      absl::StrCat(kJournalTitle, "\n", absl::StrJoin(reading_, "\n"));
  const absl::Status status =
      WriteStored(*directory_, kJournalName, BytesOf(data));
  if (status.ok()) return;
  observer_("not written", status);
}

v1::Manifest DatasetManifest::Message() const {
  v1::Manifest manifest;
  for (const auto& [name, entry] : entries_) *manifest.add_entries() = entry;
  return manifest;
}

std::vector<v1::Manifest::Entry> DatasetManifest::Entries() const {
  MutexLock lock(&mutex_);
  std::vector<v1::Manifest::Entry> entries;
  for (const auto& [name, entry] : entries_) entries.push_back(entry);
  return entries;
}

void DatasetManifest::Add(const DatasetInfo& info) {
  const std::string& name = info.spec->name();
  v1::Manifest::Entry entry;
  *entry.mutable_spec() = *info.spec;
  entry.set_owner_uid(info.owner.uid);
  entry.set_content_hash(info.dataset.content_hash());
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    const auto present = entries_.find(name);
    if (present != entries_.end()) {
      if (present->second.SerializeAsString() == entry.SerializeAsString()) {
        return;
      }
      entries_.erase(present);
    }
    status = CheckSize(entry);
    if (status.ok()) entries_[name] = std::move(entry);
    OnChanged();
  }
  if (!status.ok()) observer_("dataset not kept", status);
}

absl::Status DatasetManifest::CheckSize(
    const v1::Manifest::Entry& entry) const {
  size_t of_user = entry.ByteSizeLong() + kManifestBytesOfEntry;
  size_t total = kManifestBytes + of_user;
  for (const auto& [name, other] : entries_) {
    const size_t size = other.ByteSizeLong() + kManifestBytesOfEntry;
    total += size;
    if (other.owner_uid() == entry.owner_uid()) of_user += size;
  }
  const bool is_users_fault = of_user > kMaxManifestBytesOfUser;
  if (!is_users_fault && total <= kMaxManifestBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "dataset '", entry.spec().name(), "' of uid ", entry.owner_uid(),
      " will not be loaded again after a restart: the list of ",
      is_users_fault ? "this user's datasets" : "datasets", " would have ",
      is_users_fault ? of_user : total, " bytes, and may have ",
      is_users_fault ? kMaxManifestBytesOfUser : kMaxManifestBytes,
      "; unload datasets, or give them shorter specs"));
}

void DatasetManifest::Remove(const std::string& name, uint32_t owner_uid) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.owner_uid() != owner_uid) return;
  entries_.erase(found);
  OnChanged();
}

void DatasetManifest::OnChanged() {
  if (!is_changed_) writer_.Run([this] { WriteChanges(); });
  is_changed_ = true;
}

bool DatasetManifest::AwaitWritten(absl::Duration timeout) {
  {
    MutexLock lock(&mutex_);
    if (has_failed_) OnChanged();
  }
  return writer_.Await(timeout);
}

void DatasetManifest::WriteChanges() {
  v1::Manifest manifest;
  {
    MutexLock lock(&mutex_);
    manifest = Message();
    is_changed_ = false;
  }
  const absl::Status status = Write(manifest);
  {
    MutexLock lock(&mutex_);
    has_failed_ = !status.ok();
  }
  if (status.ok()) return;
  observer_("not written", status);
}

absl::Status DatasetManifest::Write(const v1::Manifest& manifest) {
  return WriteStored(*directory_, kFileName, BytesOf(EncodeManifest(manifest)));
}

}  // namespace datasetd
