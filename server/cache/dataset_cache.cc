#include "server/cache/dataset_cache.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/background_thread.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "server/cache/cache_writer.h"
#include "server/dataset/load_cancelled.h"

namespace datasetd {
namespace {

constexpr char kSuffix[] = ".cache";
constexpr char kTemporarySuffix[] = ".cache.tmp";
// An event.
constexpr char kNotRead[] = "not read, kept";

std::string FileName(const std::string& spec_id) {
  return absl::StrCat(spec_id, kSuffix);
}

// The spec id of a cache file, or empty if it is another file.
std::string SpecIdOf(absl::string_view name, absl::string_view suffix) {
  if (!absl::ConsumeSuffix(&name, suffix)) return "";
  std::string id(name);
  return IsCacheId(id) ? id : "";
}

absl::StatusOr<CacheHeader> ReadHeader(const RandomAccessFile& file,
                                       const std::string& spec_id) {
  DATASETD_ASSIGN_OR_RETURN(CacheHeader header, ReadCacheHeader(file));
  if (header.spec_id == spec_id) return header;
  return absl::DataLossError(
      absl::StrCat("cache entry: holds spec id ", header.spec_id));
}

absl::Span<const uint8_t> BlockOf(absl::Span<const uint8_t> place,
                                  size_t block) {
  return place.subspan(block * kCacheBlockBytes, kCacheBlockBytes);
}

absl::StatusOr<std::vector<uint64_t>> Checksums(
    absl::Span<const uint8_t> place, const std::atomic<bool>& is_cancelled) {
  std::vector<uint64_t> checksums;
  for (size_t block = 0; block * kCacheBlockBytes < place.size(); ++block) {
    DATASETD_RETURN_IF_ERROR(CheckNotCancelled(is_cancelled));
    checksums.push_back(CacheChecksum(BlockOf(place, block)));
  }
  return checksums;
}

absl::Status CopyBlocks(absl::Span<const uint8_t> from, uint8_t* to,
                        const std::atomic<bool>& is_cancelled) {
  for (size_t block = 0; block * kCacheBlockBytes < from.size(); ++block) {
    DATASETD_RETURN_IF_ERROR(CheckNotCancelled(is_cancelled));
    const absl::Span<const uint8_t> bytes = BlockOf(from, block);
    std::copy(bytes.begin(), bytes.end(), to + block * kCacheBlockBytes);
  }
  return absl::OkStatus();
}

// True if what was written by the one layout can stay where it is by the other.
bool HasPlacesOf(const CacheLayout& written, const CacheLayout& wanted) {
  for (size_t p = 0; p < wanted.places.size(); ++p) {
    if (written.places[p].offset_bytes != wanted.places[p].offset_bytes) {
      return false;
    }
  }
  return wanted.file_bytes <= written.file_bytes;
}

// True if the entry is to blame. All other errors are of the system, such as a
// disk that fails or a lack of descriptors, and the entry may be intact.
bool IsDamage(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

absl::Status StatusOf(const MappedFile& file) {
  const absl::Status status = file.status();
  if (status.ok() || file.is_cut()) return status;
  return absl::UnavailableError(status.message());
}

// True if a load may find more good samples. A push cannot be read again.
bool MayImprove(const BadSampleReport& report,
                const std::optional<uint32_t>& owner_uid) {
  return report.num_transient > 0 && !owner_uid.has_value();
}

void Add(std::atomic<uint64_t>& counter, int64_t value = 1) {
  counter.fetch_add(static_cast<uint64_t>(value), std::memory_order_relaxed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DatasetCache>> DatasetCache::Open(
    std::unique_ptr<StoreDirectory> directory, CacheIndex::Limits limits,
    Observer observer) {
  std::unique_ptr<DatasetCache> cache(
      new DatasetCache(std::move(directory), std::move(observer)));
  DATASETD_RETURN_IF_ERROR(cache->Scan(limits));
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

void DatasetCache::Report(const char* event, uint32_t uid,
                          const std::string& name, const absl::Status& status) {
  if (!status.ok() && !absl::IsCancelled(status)) Add(counters_.num_errors);
  observer_(event, uid, absl::StrCat(directory_->path(), "/", name), status);
}

absl::Status DatasetCache::Scan(CacheIndex::Limits limits) {
  DATASETD_ASSIGN_OR_RETURN(std::vector<FileInfo> files, directory_->List());
  std::sort(files.begin(), files.end(),
            [](const FileInfo& a, const FileInfo& b) {
              return a.mtime_nanoseconds < b.mtime_nanoseconds;
            });
  MutexLock lock(&mutex_);
  for (const FileInfo& file : files) {
    if (!SpecIdOf(file.path, kTemporarySuffix).empty()) {
      const absl::Status removed = directory_->Remove(file.path);
      Report("leftover removed", limits.daemon_uid, file.path, removed);
      continue;
    }
    const std::string spec_id = SpecIdOf(file.path, kSuffix);
    if (spec_id.empty()) continue;
    const auto header = [&]() -> absl::StatusOr<CacheHeader> {
      DATASETD_ASSIGN_OR_RETURN(const auto opened, directory_->Open(file.path));
      return ReadHeader(*opened, spec_id);
    }();
    if (absl::IsResourceExhausted(header.status())) return header.status();
    if (absl::IsFailedPrecondition(header.status())) {
      // It has other hashes, or not the user who stored it.
      const absl::Status removed = directory_->Remove(file.path);
      Report("of an earlier version, removed", limits.daemon_uid, file.path,
             removed);
      continue;
    }
    if (!header.ok() && IsDamage(header.status())) {
      directory_->Remove(file.path).IgnoreError();
      Report("damaged, removed", limits.daemon_uid, file.path, header.status());
      continue;
    }
    uint32_t uid = limits.daemon_uid;
    if (header.ok()) {
      uid = header->stored_by_uid;
    } else {
      Report(kNotRead, uid, file.path, header.status());
    }
    index_.Add(spec_id, uid, file.size_bytes);
  }
  if (limits.total_bytes == 0) {
    DATASETD_ASSIGN_OR_RETURN(const int64_t free, directory_->FreeBytes());
    limits.total_bytes = index_.used_bytes() + free / 2;
  }
  index_.SetLimits(limits);
  Evict(index_.PlanRoom());
  return absl::OkStatus();
}

std::unique_ptr<CachedSource> DatasetCache::OpenEntry(
    const std::string& spec_id) {
  auto source = [&]() -> absl::StatusOr<std::unique_ptr<CachedSource>> {
    DATASETD_ASSIGN_OR_RETURN(auto file, directory_->Open(FileName(spec_id)));
    DATASETD_ASSIGN_OR_RETURN(CacheHeader header, ReadHeader(*file, spec_id));
    DATASETD_ASSIGN_OR_RETURN(CacheLayout layout, LayOutCacheEntry(header));
    return std::make_unique<CachedSource>(std::move(file), std::move(header),
                                          std::move(layout));
  }();
  if (source.ok()) return *std::move(source);
  ReportUnread(spec_id, source.status());
  return nullptr;
}

void DatasetCache::ReportUnread(const std::string& spec_id,
                                const absl::Status& why) {
  if (IsDamage(why)) {
    Report("damaged, removed", RemoveEntry(spec_id), FileName(spec_id), why);
  } else {
    Report(kNotRead, index_.UidOf(spec_id), FileName(spec_id), why);
  }
}

std::unique_ptr<CachedSource> DatasetCache::Find(const std::string& spec_id) {
  MutexLock lock(&mutex_);
  std::unique_ptr<CachedSource> source;
  if (index_.Contains(spec_id)) source = OpenEntry(spec_id);
  // Only a mapped dataset has such an entry. Those that are loaded share it.
  if (source != nullptr && !index_.IsPinned(spec_id) &&
      MayImprove(source->header().bad_samples, source->header().owner_uid)) {
    source = nullptr;
  }
  if (source == nullptr) {
    Add(counters_.num_misses);
    return nullptr;
  }
  index_.Use(spec_id);
  // For the order after a restart; without it only that is worse.
  directory_->Touch(FileName(spec_id)).IgnoreError();
  return source;
}

void DatasetCache::CountHit(const CachedSource& source) {
  Add(counters_.num_hits);
  Add(counters_.read_bytes, source.size_bytes());
  Report("used", source.header().stored_by_uid,
         FileName(source.header().spec_id), absl::OkStatus());
}

bool DatasetCache::GiveUp(const std::string& spec_id, const absl::Status& why) {
  if (!absl::IsDataLoss(why) && !absl::IsUnavailable(why)) return false;
  MutexLock lock(&mutex_);
  if (!index_.Contains(spec_id)) return true;
  Add(counters_.num_misses);
  ReportUnread(spec_id, why);
  return true;
}

uint32_t DatasetCache::RemoveEntry(const std::string& spec_id) {
  directory_->Remove(FileName(spec_id)).IgnoreError();
  return index_.Remove(spec_id);
}

void DatasetCache::Evict(const std::vector<std::string>& spec_ids) {
  for (const std::string& spec_id : spec_ids) {
    Add(counters_.num_evicted);
    Report("evicted", RemoveEntry(spec_id), FileName(spec_id),
           absl::OkStatus());
  }
}

void DatasetCache::Store(CacheHeader header,
                         const std::shared_ptr<const Dataset>& dataset) {
  const int64_t num_transient = dataset->bad_samples().num_transient;
  if (MayImprove(dataset->bad_samples(), header.owner_uid)) {
    Report("not stored", header.stored_by_uid, FileName(header.spec_id),
           absl::CancelledError(absl::StrCat(
               num_transient,
               " of its bad samples may be good when they are read again")));
    return;
  }
  header.content_hash = dataset->content_hash();
  header.num_samples = dataset->num_samples();
  header.fields = dataset->fields();
  header.bad_samples = dataset->bad_samples();
  header.notes = dataset->notes();
  MutexLock lock(&mutex_);
  // So that there are no more jobs than datasets.
  std::erase_if(jobs_, [](const Job& job) { return job.dataset.expired(); });
  if (index_.Contains(header.spec_id)) return;
  jobs_.push_back({std::move(header), &dataset->backend(), dataset});
}

DatasetCache::Job DatasetCache::TakeJob() {
  const auto was_earlier = [this](const Job& a, const Job& b)
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                 // Nothing else can make a push again.
                                 if (IsPush(a) != IsPush(b)) return IsPush(a);
                                 return last_turns_[a.header.stored_by_uid] <
                                        last_turns_[b.header.stored_by_uid];
                               };
  const auto next = std::min_element(jobs_.begin(), jobs_.end(), was_earlier);
  Job job = std::move(*next);
  jobs_.erase(next);
  if (jobs_.empty()) last_turns_.clear();
  last_turns_[job.header.stored_by_uid] = ++num_turns_;
  return job;
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
      job = TakeJob();
      if (index_.Contains(job.header.spec_id)) continue;
      is_storing_ = true;
      is_storing_push_ = IsPush(job);
    }
    StoreNow(job);
    MutexLock lock(&mutex_);
    is_storing_ = is_storing_push_ = false;
  }
}

void DatasetCache::StoreNow(const Job& job) {
  const std::string& spec_id = job.header.spec_id;
  const std::string name = FileName(spec_id);
  const std::string temporary = absl::StrCat(spec_id, kTemporarySuffix);
  const uint32_t uid = job.header.stored_by_uid;
  const auto layout = LayOutCacheEntry(job.header);
  if (!layout.ok()) {
    Report("not stored", uid, name, layout.status());
    return;
  }
  std::string reserved;
  {
    MutexLock lock(&mutex_);
    const auto room = index_.PlanRoom(uid, layout->file_bytes);
    if (!room.ok()) {
      // No error: it is as configured.
      Report("not stored", uid, name,
             absl::CancelledError(room.status().message()));
      return;
    }
    Evict(*room);
    // As in Begin; the entry is added when it is written.
    reserved = TakeRoom(uid, layout->file_bytes);
  }
  absl::Status status = WriteCacheEntry(
      job.header, *layout, job.dataset, *job.backend, *directory_, temporary,
      {.gate = &copy_gate_, .is_stopping = &is_stopping_});
  {
    MutexLock lock(&mutex_);
    index_.Remove(reserved);
    if (status.ok()) {
      status = AddWritten(temporary, spec_id, uid, layout->file_bytes);
    }
  }
  if (!status.ok()) Report("not stored", uid, name, status);
}

std::string DatasetCache::TakeRoom(uint32_t uid, int64_t size_bytes) {
  std::string id = HexDigest(absl::StrCat("begun ", ++num_begun_));
  index_.Add(id, uid, size_bytes);
  index_.Pin(id);
  return id;
}

absl::Status DatasetCache::AddWritten(const std::string& temporary,
                                      const std::string& spec_id, uint32_t uid,
                                      int64_t size_bytes) {
  const std::string name = FileName(spec_id);
  if (index_.Contains(spec_id)) return directory_->Remove(temporary);
  const absl::Status status = directory_->Rename(temporary, name);
  if (!status.ok()) {
    directory_->Remove(temporary).IgnoreError();
    // The file may exist if the rename succeeded but the sync failed.
    directory_->Remove(name).IgnoreError();
    return status;
  }
  index_.Add(spec_id, uid, size_bytes);
  directory_->Touch(name).IgnoreError();  // as in Find
  Add(counters_.num_stored);
  Add(counters_.written_bytes, size_bytes);
  Report("stored", uid, name, absl::OkStatus());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const MappedEntry>> DatasetCache::Begin(
    CacheHeader header) {
  std::string id;
  CacheLayout layout;
  {
    MutexLock lock(&mutex_);
    // The real ones are known later; they have this length.
    header.spec_id = HexDigest("");
    header.content_hash = header.spec_id;
    DATASETD_ASSIGN_OR_RETURN(layout, LayOutCacheEntry(header));
    DATASETD_ASSIGN_OR_RETURN(
        const std::vector<std::string> room,
        index_.PlanRoom(header.stored_by_uid, layout.file_bytes));
    Evict(room);
    // The room is taken before the file is made, which may take long.
    id = TakeRoom(header.stored_by_uid, layout.file_bytes);
  }
  const std::string temporary = absl::StrCat(id, kTemporarySuffix);
  auto file = directory_->CreateMapped(temporary, layout.file_bytes);
  if (!file.ok()) {
    MutexLock lock(&mutex_);
    index_.Remove(id);
    return file.status();
  }
  return std::make_shared<const MappedEntry>(
      *std::move(file), std::move(layout),
      [this, id, temporary](const MappedFile&) {
        // Gone if it was finished.
        directory_->Remove(temporary).IgnoreError();
        MutexLock lock(&mutex_);
        index_.Remove(id);
      });
}

absl::StatusOr<std::shared_ptr<const MappedEntry>> DatasetCache::Finish(
    std::shared_ptr<const MappedEntry> begun, CacheHeader header,
    const std::atomic<bool>& is_cancelled) {
  DATASETD_ASSIGN_OR_RETURN(const CacheLayout layout, LayOutCacheEntry(header));
  if (!HasPlacesOf(begun->layout(), layout)) {
    // Samples were left out, or there is more to say of them.
    absl::StatusOr<std::shared_ptr<const MappedEntry>> begun_again =
        Begin(header);
    if (absl::IsResourceExhausted(begun_again.status())) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "samples were left out, so that the ", begun->layout().file_bytes,
          " bytes that were loaded have to be written a second time beside "
          "them: ",
          begun_again.status().message(),
          "; or load with bad_samples 'replace'"));
    }
    DATASETD_ASSIGN_OR_RETURN(const auto copy, std::move(begun_again));
    for (size_t p = 0; p < layout.places.size(); ++p) {
      DATASETD_RETURN_IF_ERROR(
          CopyBlocks(begun->place(p).subspan(0, copy->place(p).size()),
                     copy->place(p).data(), is_cancelled));
    }
    DATASETD_RETURN_IF_ERROR(begun->file().status());
    begun = copy;
  }
  header.checksums.clear();
  for (size_t p = 0; p < layout.places.size(); ++p) {
    const auto size = static_cast<size_t>(layout.places[p].size_bytes);
    DATASETD_ASSIGN_OR_RETURN(
        header.checksums.emplace_back(),
        Checksums(begun->place(p).subspan(0, size), is_cancelled));
  }
  const std::string text = EncodeCacheHeader(header);
  std::copy(text.begin(), text.end(), begun->file().data());
  DATASETD_RETURN_IF_ERROR(begun->file().Finish(layout.file_bytes));

  // Goes without the lock.
  std::shared_ptr<const MappedEntry> mapped;
  MutexLock lock(&mutex_);
  const std::string& spec_id = header.spec_id;
  if (index_.Contains(spec_id) && !index_.IsPinned(spec_id)) {
    RemoveEntry(spec_id);
  }
  const std::string path = begun->file().path();
  DATASETD_RETURN_IF_ERROR(AddWritten(path.substr(path.rfind('/') + 1), spec_id,
                                      header.stored_by_uid, layout.file_bytes));
  CacheHeader found;
  DATASETD_ASSIGN_OR_RETURN(mapped, MapUnchecked(spec_id, &found));
  if (found.content_hash == header.content_hash) return mapped;
  return absl::AbortedError(absl::StrCat(
      mapped->file().path(),
      ": is in use by a dataset of equal files and other samples; unload it"));
}

absl::StatusOr<std::shared_ptr<const MappedEntry>> DatasetCache::MapUnchecked(
    const std::string& spec_id, CacheHeader* header) {
  const std::string name = FileName(spec_id);
  DATASETD_ASSIGN_OR_RETURN(const auto file, directory_->Open(name));
  DATASETD_ASSIGN_OR_RETURN(*header, ReadCacheHeader(*file));
  DATASETD_ASSIGN_OR_RETURN(CacheLayout layout, LayOutCacheEntry(*header));
  DATASETD_ASSIGN_OR_RETURN(auto mapped, directory_->Map(name));
  index_.Pin(spec_id);
  return std::make_shared<const MappedEntry>(
      std::move(mapped), std::move(layout),
      [this, spec_id, generation = index_.GenerationOf(spec_id)](
          const MappedFile& used) { Unpin(spec_id, generation, used); });
}

void DatasetCache::Unpin(const std::string& spec_id, uint64_t generation,
                         const MappedFile& file) {
  MutexLock lock(&mutex_);
  if (!index_.Contains(spec_id) || index_.GenerationOf(spec_id) != generation) {
    return;
  }
  index_.Unpin(spec_id);
  if (!absl::IsDataLoss(StatusOf(file))) return;
  Report("damaged, removed", RemoveEntry(spec_id), FileName(spec_id),
         file.status());
}

absl::StatusOr<std::shared_ptr<const MappedEntry>> DatasetCache::Map(
    const std::string& spec_id, const std::string& content_hash,
    const std::atomic<bool>& is_cancelled) {
  CacheHeader header;
  std::shared_ptr<const MappedEntry> entry;
  {
    MutexLock lock(&mutex_);
    if (!index_.Contains(spec_id)) {
      return absl::NotFoundError(
          absl::StrCat(FileName(spec_id), ": is not in the cache"));
    }
    DATASETD_ASSIGN_OR_RETURN(entry, MapUnchecked(spec_id, &header));
  }
  if (header.content_hash != content_hash) {
    return absl::NotFoundError(
        absl::StrCat(FileName(spec_id), ": has other samples by now"));
  }
  for (size_t p = 0; p < header.checksums.size(); ++p) {
    for (size_t block = 0; block < header.checksums[p].size(); ++block) {
      DATASETD_RETURN_IF_ERROR(CheckNotCancelled(is_cancelled));
      if (CacheChecksum(BlockOf(entry->place(p), block)) ==
          header.checksums[p][block]) {
        continue;
      }
      DATASETD_RETURN_IF_ERROR(StatusOf(entry->file()));
      return absl::DataLossError(absl::StrCat(entry->file().path(),
                                              ": the checksum of place ", p,
                                              ", block ", block, " is wrong"));
    }
  }
  DATASETD_RETURN_IF_ERROR(StatusOf(entry->file()));
  return entry;
}

void DatasetCache::AwaitReleased() { copy_gate_.Interrupt(); }

bool DatasetCache::AwaitIdle(absl::Duration timeout) {
  const auto is_idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return jobs_.empty() && !is_storing_;
  };
  MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(Condition(&is_idle), timeout);
}

bool DatasetCache::AwaitPushes(absl::Duration timeout) {
  const auto are_stored = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !is_storing_push_ &&
           std::none_of(jobs_.begin(), jobs_.end(), IsPush);
  };
  MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(Condition(&are_stored), timeout);
}

int64_t DatasetCache::limit_bytes() const {
  MutexLock lock(&mutex_);
  return index_.limit_bytes();
}

int64_t DatasetCache::used_bytes() const {
  MutexLock lock(&mutex_);
  return index_.used_bytes();
}

int DatasetCache::num_entries() const {
  MutexLock lock(&mutex_);
  return index_.num_entries();
}

}  // namespace datasetd
