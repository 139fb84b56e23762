#include "server/dataset_manifest.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cuda/status_macros.h"
#include "server/manifest_format.h"

namespace datasetd {
namespace {

constexpr char kFileName[] = "datasets.manifest";
constexpr char kDamagedName[] = "datasets.manifest.damaged";
constexpr size_t kMaxSpecBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<DatasetManifest>> DatasetManifest::Open(
    std::unique_ptr<StoreDirectory> directory, Observer observer) {
  std::unique_ptr<DatasetManifest> manifest(
      new DatasetManifest(std::move(directory), std::move(observer)));
  DATASETD_RETURN_IF_ERROR(manifest->Read());
  manifest->thread_ =
      std::thread([manifest = manifest.get()] { manifest->RunWrites(); });
  return manifest;
}

absl::Status DatasetManifest::Read() {
  const auto data = ReadStored(*directory_, kFileName,
                               static_cast<int64_t>(kMaxManifestBytes));
  if (absl::IsNotFound(data.status())) return absl::OkStatus();
  absl::Status status = data.status();
  if (status.ok()) {
    const auto manifest = DecodeManifest(*data);
    if (manifest.ok()) {
      MutexLock lock(&mutex_);
      for (const v1::Manifest::Entry& entry : manifest->entries()) {
        entries_[entry.spec().name()] = entry;
      }
      return absl::OkStatus();
    }
    status = manifest.status();
  } else if (!absl::IsResourceExhausted(status)) {
    return status;  // the disk's fault, not the file's
  }
  num_errors_.fetch_add(1, std::memory_order_relaxed);
  observer_("damaged, set aside", status);
  return directory_->Rename(kFileName, kDamagedName);
}

DatasetManifest::~DatasetManifest() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::vector<v1::Manifest::Entry> DatasetManifest::Entries() const {
  MutexLock lock(&mutex_);
  std::vector<v1::Manifest::Entry> entries;
  for (const auto& [name, entry] : entries_) entries.push_back(entry);
  return entries;
}

void DatasetManifest::Add(const DatasetInfo& info) {
  if (info.spec.wire == nullptr || info.spec.wire->size() > kMaxSpecBytes) {
    return;
  }
  v1::Manifest::Entry entry;
  if (!entry.mutable_spec()->ParseFromString(*info.spec.wire)) return;
  entry.set_owner_uid(info.owner.uid);
  entry.set_content_hash(info.content_hash);
  MutexLock lock(&mutex_);
  v1::Manifest::Entry& present = entries_[info.spec.name];
  if (present.SerializeAsString() == entry.SerializeAsString()) return;
  present = std::move(entry);
  ++num_changes_;
}

void DatasetManifest::Remove(const std::string& name) {
  MutexLock lock(&mutex_);
  if (entries_.erase(name) > 0) ++num_changes_;
}

bool DatasetManifest::AwaitWritten(absl::Duration timeout) const {
  MutexLock lock(&mutex_);
  const uint64_t wanted = num_changes_;
  const auto is_written = [this, wanted]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_written_ >= wanted;
  };
  return mutex_.AwaitWithTimeout(Condition(&is_written), timeout);
}

void DatasetManifest::RunWrites() {
  pthread_setname_np(pthread_self(), "manifest");
  while (true) {
    v1::Manifest manifest;
    uint64_t num_changes = 0;
    {
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || num_written_ < num_changes_;
      };
      MutexLock lock(&mutex_, Condition(&has_work));
      if (num_written_ == num_changes_) return;
      for (const auto& [name, entry] : entries_) {
        *manifest.add_entries() = entry;
      }
      num_changes = num_changes_;
    }
    const absl::Status status = Write(manifest);
    if (!status.ok()) {
      num_errors_.fetch_add(1, std::memory_order_relaxed);
      observer_("not written", status);
    }
    MutexLock lock(&mutex_);
    num_written_ = num_changes;
  }
}

absl::Status DatasetManifest::Write(const v1::Manifest& manifest) {
  const std::string data = EncodeManifest(manifest);
  if (data.size() > kMaxManifestBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(directory_->path(), "/", kFileName, ": would have ",
                     data.size(), " bytes, and may have ", kMaxManifestBytes,
                     "; unload datasets"));
  }
  return WriteStored(
      *directory_, kFileName,
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(data.data()),
                          data.size()));
}

}  // namespace datasetd
