#include "server/core/dataset_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cuda/status_macros.h"
#include "server/core/background_thread.h"
#include "server/core/cache_writer.h"

namespace datasetd {
namespace {

constexpr char kSuffix[] = ".cache";
constexpr char kTemporarySuffix[] = ".cache.tmp";

std::string FileName(const std::string& spec_id) {
  return absl::StrCat(spec_id, kSuffix);
}

// The spec id of a file, or empty if it is none of the cache's.
std::string SpecIdOf(absl::string_view name, absl::string_view suffix) {
  if (!absl::ConsumeSuffix(&name, suffix)) return "";
  std::string id(name);
  return IsCacheId(id) ? id : "";
}

void Add(std::atomic<uint64_t>& counter, int64_t value = 1) {
  counter.fetch_add(static_cast<uint64_t>(value), std::memory_order_relaxed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DatasetCache>> DatasetCache::Open(
    std::unique_ptr<StoreDirectory> directory, int64_t limit_bytes,
    Observer observer) {
  std::unique_ptr<DatasetCache> cache(
      new DatasetCache(std::move(directory), std::move(observer)));
  DATASETD_RETURN_IF_ERROR(cache->Scan(limit_bytes));
  cache->thread_ = std::thread([cache = cache.get()] { cache->RunStores(); });
  return cache;
}

DatasetCache::~DatasetCache() {
  is_stopping_.store(true, std::memory_order_relaxed);
  {
    MutexLock lock(&mutex_);
    is_stopped_ = true;
  }
  copy_gate_.Interrupt();
  if (thread_.joinable()) thread_.join();
}

void DatasetCache::Report(const char* event, const std::string& name,
                          const absl::Status& status) {
  if (!status.ok() && !absl::IsCancelled(status)) Add(counters_.num_errors);
  observer_(event, absl::StrCat(directory_->path(), "/", name), status);
}

absl::Status DatasetCache::Scan(int64_t limit_bytes) {
  DATASETD_ASSIGN_OR_RETURN(std::vector<FileInfo> files, directory_->List());
  std::sort(files.begin(), files.end(),
            [](const FileInfo& a, const FileInfo& b) {
              return a.mtime_nanoseconds < b.mtime_nanoseconds;
            });
  MutexLock lock(&mutex_);
  for (const FileInfo& file : files) {
    if (!SpecIdOf(file.path, kTemporarySuffix).empty()) {
      const absl::Status removed = directory_->Remove(file.path);
      Report("leftover removed", file.path, removed);
      continue;
    }
    const std::string spec_id = SpecIdOf(file.path, kSuffix);
    if (spec_id.empty()) continue;
    const auto header = [&]() -> absl::StatusOr<CacheHeader> {
      DATASETD_ASSIGN_OR_RETURN(const auto opened, directory_->Open(file.path));
      DATASETD_ASSIGN_OR_RETURN(CacheHeader read, ReadCacheHeader(*opened));
      if (read.spec_id == spec_id) return read;
      return absl::DataLossError(
          absl::StrCat("cache entry: holds spec id ", read.spec_id));
    }();
    if (absl::IsResourceExhausted(header.status())) return header.status();
    if (absl::IsFailedPrecondition(header.status())) {
      // Its names are hashes of another kind: nothing asks for them.
      const absl::Status removed = directory_->Remove(file.path);
      Report("of an earlier version, removed", file.path, removed);
      continue;
    }
    if (!header.ok()) {
      directory_->Remove(file.path).IgnoreError();
      Report("damaged, removed", file.path, header.status());
      continue;
    }
    entries_[spec_id] = {.size_bytes = file.size_bytes,
                         .last_used = ++use_count_};
    used_bytes_ += file.size_bytes;
  }
  limit_bytes_ = limit_bytes;
  if (limit_bytes == 0) {
    DATASETD_ASSIGN_OR_RETURN(const int64_t free, directory_->FreeBytes());
    limit_bytes_ = used_bytes_ + free / 2;
  }
  MakeRoom(0);
  return absl::OkStatus();
}

std::unique_ptr<CachedSource> DatasetCache::OpenEntry(
    const std::string& spec_id) {
  const std::string name = FileName(spec_id);
  auto source = [&]() -> absl::StatusOr<std::unique_ptr<CachedSource>> {
    DATASETD_ASSIGN_OR_RETURN(auto file, directory_->Open(name));
    DATASETD_ASSIGN_OR_RETURN(CacheHeader header, ReadCacheHeader(*file));
    if (header.spec_id != spec_id) {
      return absl::DataLossError(
          absl::StrCat("cache entry: holds spec id ", header.spec_id));
    }
    DATASETD_ASSIGN_OR_RETURN(CacheLayout layout, LayOutCacheEntry(header));
    return std::make_unique<CachedSource>(std::move(file), std::move(header),
                                          std::move(layout));
  }();
  if (absl::IsResourceExhausted(source.status())) {
    // Too many open files: the entry is not to blame.
    Report("not opened", name, source.status());
    return nullptr;
  }
  if (!source.ok()) {
    RemoveEntry(spec_id);
    Report("damaged, removed", name, source.status());
    return nullptr;
  }
  entries_[spec_id].last_used = ++use_count_;
  // For the order after a restart; without it only that is worse.
  directory_->Touch(name).IgnoreError();
  return *std::move(source);
}

std::unique_ptr<CachedSource> DatasetCache::Find(const std::string& spec_id) {
  MutexLock lock(&mutex_);
  std::unique_ptr<CachedSource> source;
  if (entries_.count(spec_id) != 0) source = OpenEntry(spec_id);
  if (source == nullptr) Add(counters_.num_misses);
  return source;
}

void DatasetCache::CountHit(const CachedSource& source) {
  Add(counters_.num_hits);
  Add(counters_.read_bytes, source.size_bytes());
  Report("used", FileName(source.header().spec_id), absl::OkStatus());
}

void DatasetCache::Discard(const std::string& spec_id,
                           const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (entries_.count(spec_id) == 0) return;
  RemoveEntry(spec_id);
  Add(counters_.num_misses);
  Report("damaged, removed", FileName(spec_id), why);
}

void DatasetCache::RemoveEntry(const std::string& spec_id) {
  const auto found = entries_.find(spec_id);
  used_bytes_ -= found->second.size_bytes;
  entries_.erase(found);
  directory_->Remove(FileName(spec_id)).IgnoreError();
}

void DatasetCache::MakeRoom(int64_t bytes) {
  while (!entries_.empty() && used_bytes_ > limit_bytes_ - bytes) {
    const auto oldest = std::min_element(
        entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second.last_used < b.second.last_used;
        });
    const std::string spec_id = oldest->first;
    RemoveEntry(spec_id);
    Add(counters_.num_evicted);
    Report("evicted", FileName(spec_id), absl::OkStatus());
  }
}

void DatasetCache::Store(Description description,
                         const std::shared_ptr<const Dataset>& dataset) {
  Job job;
  job.header.spec_id = std::move(description.spec_id);
  job.header.content_hash = dataset->content_hash();
  job.header.owner_uid = description.owner_uid;
  job.header.num_samples = dataset->num_samples();
  job.header.fields = dataset->fields();
  job.header.class_names = std::move(description.class_names);
  job.header.notes = std::move(description.notes);
  job.backend = &dataset->backend();
  job.dataset = dataset;
  MutexLock lock(&mutex_);
  if (entries_.count(job.header.spec_id) != 0) return;
  jobs_.push_back(std::move(job));
}

void DatasetCache::RunStores() {
  BecomeBackgroundThread("cache");
  while (true) {
    Job job;
    {
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopped_ || !jobs_.empty();
      };
      MutexLock lock(&mutex_, Condition(&has_work));
      if (is_stopped_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      if (entries_.count(job.header.spec_id) != 0) continue;
      is_storing_ = true;
    }
    StoreNow(job);
    MutexLock lock(&mutex_);
    is_storing_ = false;
  }
}

void DatasetCache::StoreNow(const Job& job) {
  const std::string& spec_id = job.header.spec_id;
  const std::string name = FileName(spec_id);
  const std::string temporary = absl::StrCat(spec_id, kTemporarySuffix);
  const auto layout = LayOutCacheEntry(job.header);
  if (!layout.ok()) {
    Report("not stored", name, layout.status());
    return;
  }
  if (layout->file_bytes > limit_bytes_) {
    Report("not stored", name,
           absl::CancelledError(absl::StrCat(
               "it takes ", layout->file_bytes, " bytes, and the cache has ",
               limit_bytes_, "; raise cache.limit_mib")));
    return;
  }
  {
    MutexLock lock(&mutex_);
    MakeRoom(layout->file_bytes);
  }
  absl::Status status = WriteCacheEntry(
      job.header, *layout, job.dataset, *job.backend, *directory_, temporary,
      {.gate = &copy_gate_, .is_stopping = &is_stopping_});
  // Nobody else touches a file that is not in entries_.
  if (status.ok()) {
    status = directory_->Rename(temporary, name);
    if (!status.ok()) {
      directory_->Remove(temporary).IgnoreError();
      // A rename that was done and not synced may be there.
      directory_->Remove(name).IgnoreError();
    }
  }
  if (!status.ok()) {
    Report("not stored", name, status);
    return;
  }
  MutexLock lock(&mutex_);
  entries_[spec_id] = {.size_bytes = layout->file_bytes,
                       .last_used = ++use_count_};
  used_bytes_ += layout->file_bytes;
  Add(counters_.num_stored);
  Add(counters_.written_bytes, layout->file_bytes);
  Report("stored", name, absl::OkStatus());
}

void DatasetCache::AwaitLetGo() { copy_gate_.Interrupt(); }

bool DatasetCache::AwaitIdle(absl::Duration timeout) {
  const auto is_idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return jobs_.empty() && !is_storing_;
  };
  MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(Condition(&is_idle), timeout);
}

int64_t DatasetCache::used_bytes() const {
  MutexLock lock(&mutex_);
  return used_bytes_;
}

int DatasetCache::num_entries() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(entries_.size());
}

}  // namespace datasetd
