#include "server/core/dataset_registry.h"

#include <pthread.h>
#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cuda/status_macros.h"
#include "server/core/bad_sample_text.h"
#include "server/core/cached_source.h"
#include "server/core/dataset_name.h"
#include "server/core/load_planner.h"
#include "server/core/sample_sizes.h"

namespace datasetd {
namespace {

constexpr int kNumLoadThreads = 2;
constexpr size_t kMaxNameLength = 128;
constexpr size_t kMaxFailures = 64;
constexpr absl::Duration kOpenTimeout = absl::Seconds(30);

std::string HexHash(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

// Spec and files: equal ids name the same samples, unless a file was changed
// under the same size and mtime.
std::string SpecId(const DatasetSpec& spec, const SourceInfo& source) {
  std::string text = absl::StrCat("datasetd spec 1\n", spec.format, "\n",
                                  spec.path, "\n", spec.split, "\n",
                                  spec.device, "\n", spec.pretransforms_key,
                                  "\n");
  if (spec.bad_samples != BadSamplePolicy::kFail) {
    absl::StrAppend(&text, "bad samples ", static_cast<int>(spec.bad_samples),
                    " ", spec.max_bad_samples, "\n");
  }
  for (const auto& [key, value] : spec.options) {
    absl::StrAppend(&text, key.size(), ":", key, "=", value.size(), ":", value,
                    "\n");
  }
  for (const FileInfo& file : source.files) {
    absl::StrAppend(&text, file.path, " ", file.size_bytes, " ",
                    file.mtime_nanoseconds, "\n");
  }
  return HexHash(text);
}

// Whether `fields`, which are resident, are what the plan makes.
bool AreFieldsOf(const LoadPlan& plan, const std::vector<FieldSpec>& fields) {
  if (plan.fields.size() != fields.size()) return false;
  for (size_t f = 0; f < fields.size(); ++f) {
    FieldSpec planned = plan.fields[f].resident;
    if (plan.fields[f].needs_sizes && fields[f].shape.size() > 1) {
      planned.shape[0] = fields[f].shape[0];
      planned.shape[1] = fields[f].shape[1];
      planned.smallest = fields[f].smallest;
      planned.largest = fields[f].largest;
      planned.num_pixels = fields[f].num_pixels;
      planned.packed_bytes = fields[f].packed_bytes;
    }
    if (planned != fields[f]) return false;
  }
  return true;
}

}  // namespace

std::string PushedSpecId(const std::string& name,
                         const std::string& content_hash) {
  return HexHash(
      absl::StrCat("datasetd push 1\n", name, "\n", content_hash, "\n"));
}

struct DatasetRegistry::Entry {
  uint64_t id = 0;
  DatasetSpec spec;
  DatasetState state = DatasetState::kLoading;
  absl::Status error;
  Caller owner;
  // Loaded whether or not somebody holds it.
  bool is_restored = false;
  // What follows is known; until then it is LOADING.
  bool is_opened = false;
  std::string spec_id;
  SourceInfo source;  // but for its files
  std::vector<FieldSpec> fields;  // resident
  int64_t resident_bytes = 0;
  // Monotonic.
  absl::Duration started;
  absl::Duration finished;
  absl::Duration last_used;
  std::set<uint64_t> holders;  // sessions
  int num_feeds = 0;
  // Until loaded.
  std::unique_ptr<SampleSource> reader;
  LoadPlan plan;
  Reservation reservation;
  Reservation scratch_reservation;
  Backend* backend = nullptr;
  LoadCounters counters;
  // Of a restored dataset, until it is opened.
  std::shared_ptr<SourceScan> scan;
  // Of a push, while it is LOADING.
  std::function<void()> cancel;
  // When READY or UNLOADING.
  std::shared_ptr<const Dataset> dataset;
};

DatasetUse& DatasetUse::operator=(DatasetUse&& other) noexcept {
  if (this != &other) {
    Reset();
    registry_ = std::exchange(other.registry_, nullptr);
    entry_id_ = other.entry_id_;
    dataset_ = std::move(other.dataset_);
  }
  return *this;
}

bool DatasetUse::IsReady() const {
  return registry_ != nullptr && registry_->IsReady(entry_id_);
}

void DatasetUse::Reset() {
  dataset_.reset();
  if (registry_ != nullptr) {
    std::exchange(registry_, nullptr)->EndUse(entry_id_);
  }
}

DatasetRegistry::DatasetRegistry(Options options, DeviceTable* devices,
                                 SourceOpener open_source, const Clock* clock,
                                 Observer observer)
    : options_(options),
      devices_(devices),
      open_source_(std::move(open_source)),
      clock_(clock),
      observer_(std::move(observer)) {
  for (int i = 0; i < kNumLoadThreads; ++i) {
    threads_.emplace_back([this] { RunLoads(); });
  }
}

DatasetRegistry::~DatasetRegistry() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
    queue_.clear();
    for (auto& [name, entry] : entries_) Cancel(*entry);
    for (PendingScan& pending : scans_) {
      pending.scan->is_cancelled.store(true, std::memory_order_relaxed);
    }
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status DatasetRegistry::CheckSpec(const DatasetSpec& spec,
                                        const Caller& caller) {
  if (spec.is_pinned && caller.session_id != 0 && !caller.is_privileged) {
    return absl::PermissionDeniedError(
        "pin: only root, the daemon's user and its configuration may pin a "
        "dataset");
  }
  if (IsDatasetName(spec.name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "name: a dataset's name has 1 to 128 characters of [A-Za-z0-9._-] and "
      "begins with a letter or digit");
}

bool DatasetRegistry::MaySee(const Entry& entry, const Caller& caller) {
  return !entry.spec.is_private || caller.is_privileged ||
         caller.session_id == 0 || caller.uid == entry.owner.uid;
}

absl::StatusOr<std::shared_ptr<DatasetRegistry::Entry>> DatasetRegistry::Find(
    const std::string& name, const Caller& caller) const {
  const auto found = entries_.find(name);
  if (found == entries_.end() || !MaySee(*found->second, caller)) {
    return NotFound(name, caller);
  }
  return found->second;
}

absl::Status DatasetRegistry::CheckUserLimit(const Caller& caller,
                                             const Entry* self) const {
  const int limit = options_.max_datasets_per_user;
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

absl::Status DatasetRegistry::NotFound(const std::string& name,
                                       const Caller& caller) const {
  std::string names;
  for (const auto& [other, entry] : entries_) {
    if (!MaySee(*entry, caller)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", other);
  }
  return absl::NotFoundError(absl::StrCat(
      "no dataset '", name.substr(0, kMaxNameLength), "'; there ",
      names.empty() ? std::string("is none") : absl::StrCat("are: ", names)));
}

absl::StatusOr<DatasetRegistry::OpenedSource> DatasetRegistry::OpenSource(
    DatasetSpec spec, const std::string& content_hash,
    std::shared_ptr<SourceScan> scan) const {
  OpenedSource opened;
  DATASETD_ASSIGN_OR_RETURN(opened.device, devices_->Find(spec.device));
  spec.device = opened.device->name();
  if (spec.format == kPushedFormat) {
    opened.reader = options_.cache == nullptr
                        ? nullptr
                        : options_.cache->FindContent(content_hash);
    if (opened.reader == nullptr) {
      return absl::NotFoundError(absl::StrCat(
          "the samples that were pushed are not in the cache (content hash ",
          content_hash, "); push them again"));
    }
    opened.spec_id = PushedSpecId(spec.name, content_hash);
    spec.pretransforms.clear();  // done before they were stored
  } else {
    DATASETD_ASSIGN_OR_RETURN(opened.reader,
                              open_source_(spec, std::move(scan)));
    opened.spec_id = SpecId(spec, opened.reader->info());
  }
  DATASETD_ASSIGN_OR_RETURN(
      opened.plan, PlanSource(spec, opened.reader->info(),
                              opened.device->backend->max_teams()));
  opened.spec = std::move(spec);
  return opened;
}

absl::StatusOr<DatasetRegistry::OpenedSource> DatasetRegistry::ScanSource(
    DatasetSpec spec, const Caller& caller, std::shared_ptr<SourceScan> scan) {
  if (scan == nullptr) scan = std::make_shared<SourceScan>();
  std::list<PendingScan> pending;
  pending.push_back({spec, caller, scan, clock_->Monotonic()});
  const auto self = pending.begin();
  {
    MutexLock lock(&mutex_);
    if (is_stopping_) {
      return absl::UnavailableError("the daemon is shutting down");
    }
    scans_.splice(scans_.end(), pending);
  }
  const absl::Cleanup leave = [&] {
    MutexLock lock(&mutex_);
    scans_.erase(self);
  };
  return OpenSource(std::move(spec), "", std::move(scan));
}

void DatasetRegistry::Prepare(Entry& entry, OpenedSource source,
                              Reservation reservation) {
  entry.spec = std::move(source.spec);
  entry.spec_id = std::move(source.spec_id);
  entry.source = source.reader->info();
  entry.source.files = {};
  entry.reader = std::move(source.reader);
  SetPlan(entry, std::move(source.plan));
  entry.reservation = std::move(reservation);
  entry.backend = source.device->backend.get();
  entry.scan = nullptr;
  entry.is_opened = true;
}

void DatasetRegistry::SetPlan(Entry& entry, LoadPlan plan) {
  entry.fields.clear();
  for (const LoadPlan::FieldPlan& field : plan.fields) {
    entry.fields.push_back(field.resident);
  }
  entry.resident_bytes = plan.resident_bytes;
  entry.plan = std::move(plan);
}

absl::Status DatasetRegistry::TakePlan(Entry& entry, LoadPlan plan) {
  MutexLock lock(&mutex_);
  entry.reservation.Release();
  DATASETD_ASSIGN_OR_RETURN(entry.reservation,
                            Reserve(entry.spec, plan, entry.owner));
  SetPlan(entry, std::move(plan));
  return absl::OkStatus();
}

absl::Status DatasetRegistry::FindSizes(Entry& entry) {
  entry.reader->AllowSmallerImages(entry.plan.smaller_images);
  DATASETD_ASSIGN_OR_RETURN(
      auto sizes, FindSampleSizes(*entry.reader, entry.plan,
                                  entry.counters.is_cancelled));
  DATASETD_ASSIGN_OR_RETURN(
      LoadPlan plan,
      PlanSource(entry.spec, entry.reader->info(), entry.backend->max_teams(),
                 std::move(sizes)));
  return TakePlan(entry, std::move(plan));
}

absl::Status DatasetRegistry::AwaitOpened(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return absl::OkStatus();
  const std::shared_ptr<Entry> entry = found->second;
  const auto is_opened = [this, &entry]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return entry->is_opened || entry->state != DatasetState::kLoading ||
           is_stopping_;
  };
  if (mutex_.AwaitWithTimeout(Condition(&is_opened), kOpenTimeout)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("dataset '", name, "' is being loaded again after a restart "
                   "of the daemon, and its files are not found yet; try again "
                   "later"));
}

absl::Status DatasetRegistry::Load(DatasetSpec spec, const Caller& caller,
                                   std::shared_ptr<SourceScan> scan) {
  DATASETD_RETURN_IF_ERROR(CheckSpec(spec, caller));
  if (spec.format == kPushedFormat) {
    return absl::InvalidArgumentError(absl::StrCat(
        "format: a dataset of format '", kPushedFormat, "' has no files to "
        "load; push it, or get it by its name"));
  }
  // The source is opened before the lock is taken: it may be slow.
  DATASETD_ASSIGN_OR_RETURN(OpenedSource source,
                            ScanSource(std::move(spec), caller,
                                       std::move(scan)));
  const std::string& name = source.spec.name;

  MutexLock lock(&mutex_);
  DATASETD_RETURN_IF_ERROR(AwaitOpened(name));
  const auto found = entries_.find(name);
  if (found != entries_.end() &&
      found->second->state != DatasetState::kFailed) {
    Entry& present = *found->second;
    if (!MaySee(present, caller) ||
        present.state == DatasetState::kUnloading ||
        present.spec_id != source.spec_id) {
      return NameTaken(present, caller);
    }
    if (present.counters.is_cancelled.load(std::memory_order_relaxed)) {
      return absl::AbortedError(
          absl::StrCat("the load of dataset '", name,
                       "' is just being cancelled; try again"));
    }
    present.holders.insert(caller.session_id);
    present.last_used = clock_->Monotonic();
    return absl::OkStatus();
  }
  DATASETD_ASSIGN_OR_RETURN(std::shared_ptr<Entry> entry,
                            Admit(std::move(source), caller));
  queue_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status DatasetRegistry::NameTaken(const Entry& present,
                                        const Caller& caller) {
  const std::string& name = present.spec.name;
  if (!MaySee(present, caller)) {
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

absl::StatusOr<std::shared_ptr<DatasetRegistry::Entry>> DatasetRegistry::Admit(
    OpenedSource source, const Caller& caller) {
  if (is_stopping_) {
    return absl::UnavailableError("the daemon is shutting down");
  }
  // A failure of this name is replaced.
  const auto found = entries_.find(source.spec.name);
  DATASETD_RETURN_IF_ERROR(CheckUserLimit(
      caller, found == entries_.end() ? nullptr : found->second.get()));
  DATASETD_ASSIGN_OR_RETURN(Reservation reservation,
                            Reserve(source.spec, source.plan, caller));
  DATASETD_ASSIGN_OR_RETURN(Reservation scratch,
                            ReserveScratch(source, caller));
  auto entry = std::make_shared<Entry>();
  entry->scratch_reservation = std::move(scratch);
  entry->owner = caller;
  entry->id = next_entry_id_++;
  entry->started = clock_->Monotonic();
  entry->last_used = entry->started;
  entry->holders.insert(caller.session_id);
  Prepare(*entry, std::move(source), std::move(reservation));
  entries_[entry->spec.name] = entry;
  counters_.num_loads.fetch_add(1, std::memory_order_relaxed);
  observer_("loading", InfoOf(*entry), caller);
  return entry;
}

absl::Status DatasetRegistry::Push(DatasetSpec spec,
                                   std::unique_ptr<SampleSource> source,
                                   const Caller& caller,
                                   std::function<void()> cancel) {
  DATASETD_RETURN_IF_ERROR(CheckSpec(spec, caller));
  OpenedSource opened;
  DATASETD_ASSIGN_OR_RETURN(opened.device, devices_->Find(spec.device));
  spec.device = opened.device->name();
  DATASETD_ASSIGN_OR_RETURN(
      opened.plan, PlanSource(spec, source->info(),
                              opened.device->backend->max_teams()));
  opened.spec = std::move(spec);
  opened.reader = std::move(source);
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(&mutex_);
    DATASETD_RETURN_IF_ERROR(AwaitOpened(opened.spec.name));
    const auto found = entries_.find(opened.spec.name);
    if (found != entries_.end() &&
        found->second->state != DatasetState::kFailed) {
      return NameTaken(*found->second, caller);
    }
    DATASETD_ASSIGN_OR_RETURN(entry, Admit(std::move(opened), caller));
    entry->cancel = std::move(cancel);
  }
  auto dataset = LoadDataset(entry->spec.name, entry->plan, *entry->reader,
                             entry->backend, std::move(entry->reservation),
                             entry->counters);
  if (dataset.ok()) {
    {
      MutexLock lock(&mutex_);
      entry->spec_id =
          PushedSpecId(entry->spec.name, (*dataset)->content_hash());
    }
    StoreInCache(*entry, *dataset);
  }
  MutexLock lock(&mutex_);
  entry->cancel = nullptr;
  if (!dataset.ok() &&
      entry->counters.is_cancelled.load(std::memory_order_relaxed)) {
    dataset = absl::CancelledError("the push was cancelled");
  }
  FinishLoad(*entry, std::move(dataset));
  const absl::Status status = entry->error;
  entry.reset();
  return status;
}

void DatasetRegistry::Cancel(Entry& entry) {
  entry.counters.is_cancelled.store(true, std::memory_order_relaxed);
  if (entry.scan != nullptr) {
    entry.scan->is_cancelled.store(true, std::memory_order_relaxed);
  }
  if (entry.cancel) entry.cancel();
}

void DatasetRegistry::Restore(std::vector<RestoredDataset> datasets) {
  std::vector<std::pair<std::shared_ptr<Entry>, std::string>> restored;
  MutexLock lock(&mutex_);
  for (RestoredDataset& dataset : datasets) {
    if (entries_.count(dataset.spec.name) != 0) continue;
    const auto entry = std::make_shared<Entry>();
    entry->id = next_entry_id_++;
    entry->spec = std::move(dataset.spec);
    entry->owner = dataset.owner;
    entry->is_restored = true;
    entry->scan = std::make_shared<SourceScan>();
    entry->started = clock_->Monotonic();
    entry->last_used = entry->started;
    entries_[entry->spec.name] = entry;
    restored.emplace_back(entry, std::move(dataset.content_hash));
    counters_.num_loads.fetch_add(1, std::memory_order_relaxed);
  }
  threads_.emplace_back([this, restored = std::move(restored)]() mutable {
    RunRestore(std::move(restored));
  });
}

void DatasetRegistry::RunRestore(
    std::vector<std::pair<std::shared_ptr<Entry>, std::string>> entries) {
  pthread_setname_np(pthread_self(), "restore");
  for (auto& [entry, content_hash] : entries) {
    // Nothing else changes the spec before it is opened.
    absl::Status status = CheckSpec(entry->spec, entry->owner);
    absl::StatusOr<OpenedSource> source =
        status.ok() ? OpenSource(entry->spec, content_hash, entry->scan)
                    : absl::StatusOr<OpenedSource>(status);
    MutexLock lock(&mutex_);
    if (is_stopping_) return;
    if (entry->counters.is_cancelled.load(std::memory_order_relaxed)) {
      status = absl::CancelledError("the load was cancelled");
    } else if (!source.ok()) {
      status = source.status();
    } else {
      status = CheckUserLimit(entry->owner, entry.get());
    }
    if (status.ok()) {
      auto reservation = Reserve(source->spec, source->plan, entry->owner);
      status = reservation.status();
      auto scratch = status.ok() ? ReserveScratch(*source, entry->owner)
                                 : absl::StatusOr<Reservation>(status);
      status = scratch.status();
      if (status.ok()) {
        entry->scratch_reservation = *std::move(scratch);
        Prepare(*entry, *std::move(source), *std::move(reservation));
        queue_.push_back(entry);
        observer_("loading again", InfoOf(*entry), entry->owner);
      }
    }
    if (!status.ok()) FinishLoad(*entry, status);
    // The table's alone, as in RunLoads.
    entry.reset();
  }
}

absl::StatusOr<Reservation> DatasetRegistry::ReserveScratch(
    const OpenedSource& source, const Caller& caller) {
  if (source.plan.scratch_bytes == 0) return Reservation();
  return source.device->budget->Reserve(
      MemoryKind::kScratch, caller.uid, source.plan.scratch_bytes,
      absl::StrCat("the pretransforms of dataset '", source.spec.name, "'"),
      caller.session_id == 0);
}

absl::StatusOr<std::unique_ptr<LoadEstimator>> DatasetRegistry::Estimate(
    DatasetSpec spec, const Caller& caller,
    std::shared_ptr<SourceScan> scan) const {
  DATASETD_RETURN_IF_ERROR(CheckSpec(spec, caller));
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(spec.device));
  spec.device = device->name();
  if (scan == nullptr) scan = std::make_shared<SourceScan>();
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<SampleSource> source,
                            open_source_(spec, std::move(scan)));
  return LoadEstimator::Start(spec, std::move(source), *device->budget,
                              device->backend->max_teams());
}

absl::StatusOr<Reservation> DatasetRegistry::Reserve(const DatasetSpec& spec,
                                                     const LoadPlan& plan,
                                                     const Caller& caller) {
  const bool is_exempt = caller.session_id == 0;
  const std::string what = absl::StrCat("dataset '", spec.name, "'");
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(spec.device));
  auto reservation =
      device->budget->Reserve(MemoryKind::kDataset, caller.uid,
                              plan.resident_bytes, what, is_exempt);
  if (reservation.ok()) return reservation;
  Evict(spec.device, plan.resident_bytes);
  return device->budget->Reserve(MemoryKind::kDataset, caller.uid,
                                 plan.resident_bytes, what, is_exempt);
}

void DatasetRegistry::MakeRoom(const std::string& device, int64_t bytes) {
  MutexLock lock(&mutex_);
  Evict(device, bytes);
}

void DatasetRegistry::Evict(const std::string& device, int64_t bytes) {
  std::vector<std::shared_ptr<Entry>> unused;
  for (const auto& [name, entry] : entries_) {
    if (entry->spec.device == device && entry->state == DatasetState::kReady &&
        !entry->spec.is_pinned && entry->holders.empty() &&
        entry->num_feeds == 0) {
      unused.push_back(entry);
    }
  }
  std::sort(unused.begin(), unused.end(), [](const auto& a, const auto& b) {
    return a->last_used < b->last_used;
  });
  int64_t freed = 0;
  for (const std::shared_ptr<Entry>& entry : unused) {
    if (freed >= bytes) break;
    freed += entry->resident_bytes;
    counters_.num_evicted.fetch_add(1, std::memory_order_relaxed);
    observer_("evicted", InfoOf(*entry), Caller());
    entries_.erase(entry->spec.name);
  }
  unused.clear();
  AwaitLetGo();
}

void DatasetRegistry::AwaitLetGo() {
  if (options_.cache != nullptr) options_.cache->AwaitLetGo();
}

void DatasetRegistry::RunLoads() {
  pthread_setname_np(pthread_self(), "load");
  while (true) {
    std::shared_ptr<Entry> entry;
    {
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || !queue_.empty();
      };
      MutexLock lock(&mutex_, Condition(&has_work));
      if (is_stopping_) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    // Nothing else touches reader, plan and reservation while LOADING.
    auto dataset = LoadSamples(*entry);
    if (dataset.ok()) StoreInCache(*entry, *dataset);
    MutexLock lock(&mutex_);
    FinishLoad(*entry, std::move(dataset));
    // Before anybody is told: the entry's memory is the table's alone.
    entry.reset();
  }
}

void DatasetRegistry::StoreInCache(
    const Entry& entry, const std::shared_ptr<const Dataset>& dataset) {
  if (options_.cache == nullptr) return;
  DatasetCache::Description description = {
      .spec_id = entry.spec_id, .class_names = entry.source.class_names};
  const BadSampleReport& bad_samples = dataset->bad_samples();
  if (bad_samples.num_samples > 0) {
    description.notes[kBadSamplesNote] = BadSamplesToText(bad_samples);
  }
  options_.cache->Store(std::move(description), dataset);
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetRegistry::LoadSamples(
    Entry& entry) {
  if (options_.cache != nullptr) {
    auto cached = LoadCached(entry);
    if (!cached.ok() || *cached != nullptr) return cached;
    entry.counters.num_samples.store(0, std::memory_order_relaxed);
    entry.counters.num_bytes.store(0, std::memory_order_relaxed);
  }
  if (entry.plan.needs_sizes()) {
    DATASETD_RETURN_IF_ERROR(FindSizes(entry));
  }
  return LoadDataset(entry.spec.name, entry.plan, *entry.reader, entry.backend,
                     std::move(entry.reservation), entry.counters);
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetRegistry::LoadCached(
    Entry& entry) {
  // Of a pushed dataset the reader is the entry.
  if (entry.spec.format == kPushedFormat) return nullptr;
  const std::unique_ptr<CachedSource> source =
      options_.cache->Find(entry.spec_id);
  if (source == nullptr) return nullptr;
  const auto load = [&]() -> absl::StatusOr<std::shared_ptr<const Dataset>> {
    const SourceInfo& info = source->info();
    DATASETD_ASSIGN_OR_RETURN(
        LoadPlan plan,
        PlanLoad(info,
                 std::vector<std::optional<FieldProgram>>(info.fields.size()),
                 entry.backend->max_teams()));
    if (!AreFieldsOf(entry.plan, info.fields)) {
      return absl::DataLossError(
          "cache entry: its fields are not those of the source");
    }
    if (entry.plan.needs_sizes()) {
      // What is not known yet stays so, in case that the entry is damaged.
      const LoadPlan unknown = entry.plan;
      DATASETD_RETURN_IF_ERROR(TakePlan(entry, plan));
      MutexLock lock(&mutex_);
      entry.plan = unknown;
    } else if (plan.resident_bytes > entry.plan.resident_bytes) {
      return absl::DataLossError(
          "cache entry: it has more samples than the source");
    }
    return LoadDataset(entry.spec.name, plan, *source, entry.backend,
                       std::move(entry.reservation), entry.counters,
                       source->header().content_hash);
  };
  auto dataset = load();
  if (dataset.ok()) {
    options_.cache->CountHit(*source);
    return dataset;
  }
  if (!absl::IsDataLoss(dataset.status())) return dataset;
  options_.cache->Discard(entry.spec_id, dataset.status());
  return nullptr;
}

void DatasetRegistry::FinishLoad(
    Entry& entry, absl::StatusOr<std::shared_ptr<const Dataset>> dataset) {
  entry.reader.reset();
  entry.reservation.Release();
  entry.scratch_reservation.Release();
  entry.finished = clock_->Monotonic();
  entry.last_used = entry.finished;
  if (dataset.ok() &&
      entry.counters.is_cancelled.load(std::memory_order_relaxed)) {
    dataset = absl::CancelledError("the load was cancelled");
  }
  if (dataset.ok()) {
    entry.dataset = *std::move(dataset);
    entry.fields = entry.dataset->fields();
    entry.state = DatasetState::kReady;
    counters_.num_ready.fetch_add(1, std::memory_order_relaxed);
    counters_.loaded_bytes.fetch_add(
        static_cast<uint64_t>(entry.resident_bytes), std::memory_order_relaxed);
    observer_("ready", InfoOf(entry), entry.owner);
    return;
  }
  entry.state = DatasetState::kFailed;
  entry.error = dataset.status();
  const bool is_cancelled = absl::IsCancelled(entry.error);
  (is_cancelled ? counters_.num_cancelled : counters_.num_failed)
      .fetch_add(1, std::memory_order_relaxed);
  observer_("failed", InfoOf(entry), entry.owner);
  if (is_cancelled) {
    const auto found = entries_.find(entry.spec.name);
    if (found != entries_.end() && found->second.get() == &entry) {
      entries_.erase(found);
    }
    AwaitLetGo();
  }
  ForgetOldFailures();
}

void DatasetRegistry::ForgetOldFailures() {
  std::vector<std::shared_ptr<Entry>> failures;
  for (const auto& [name, entry] : entries_) {
    if (entry->state == DatasetState::kFailed) failures.push_back(entry);
  }
  if (failures.size() <= kMaxFailures) return;
  std::sort(failures.begin(), failures.end(), [](const auto& a, const auto& b) {
    return a->finished < b->finished;
  });
  for (size_t i = 0; i + kMaxFailures < failures.size(); ++i) {
    entries_.erase(failures[i]->spec.name);
  }
}

absl::Status DatasetRegistry::Hold(const std::string& name,
                                   const Caller& caller) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> found,
                            Find(name, caller));
  Entry& entry = *found;
  if (entry.state == DatasetState::kLoading ||
      entry.state == DatasetState::kReady) {
    entry.holders.insert(caller.session_id);
    entry.last_used = clock_->Monotonic();
  }
  return absl::OkStatus();
}

DatasetInfo DatasetRegistry::InfoOf(const Entry& entry) const {
  DatasetInfo info;
  info.spec = entry.spec;
  info.state = entry.state;
  info.error = entry.error;
  info.owner = entry.owner;
  info.num_samples = entry.dataset != nullptr ? entry.dataset->num_samples()
                                              : entry.source.num_samples;
  info.fields = entry.fields;
  info.class_names = entry.source.class_names;
  info.resident_bytes = entry.resident_bytes;
  info.spec_id = entry.spec_id;
  if (entry.dataset != nullptr) {
    info.content_hash = entry.dataset->content_hash();
    info.num_samples = entry.dataset->num_samples();
    info.bad_samples = entry.dataset->bad_samples();
  } else {
    info.bad_samples.num_samples =
        entry.counters.num_bad_samples.load(std::memory_order_relaxed);
  }
  info.is_scanning = entry.state == DatasetState::kLoading && !entry.is_opened;
  if (entry.scan != nullptr) {
    info.num_entries_scanned =
        entry.scan->num_entries.load(std::memory_order_relaxed);
  }
  info.num_feeds = entry.num_feeds;
  info.num_holders = static_cast<int>(entry.holders.size());
  info.num_samples_loaded =
      entry.counters.num_samples.load(std::memory_order_relaxed);
  info.loaded_bytes = entry.counters.num_bytes.load(std::memory_order_relaxed);
  info.elapsed = (entry.state == DatasetState::kLoading ? clock_->Monotonic()
                                                        : entry.finished) -
                 entry.started;
  return info;
}

absl::StatusOr<DatasetInfo> DatasetRegistry::Await(
    const std::string& name, absl::Duration timeout) const {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotFound(name, Caller());
  const std::shared_ptr<Entry> entry = found->second;
  const auto is_settled = [this, &entry]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return entry->state != DatasetState::kLoading || is_stopping_;
  };
  mutex_.AwaitWithTimeout(Condition(&is_settled), timeout);
  return InfoOf(*entry);
}

std::vector<DatasetInfo> DatasetRegistry::List() const {
  MutexLock lock(&mutex_);
  std::vector<DatasetInfo> infos;
  for (const auto& [name, entry] : entries_) infos.push_back(InfoOf(*entry));
  for (const PendingScan& pending : scans_) {
    // A name once.
    if (std::any_of(infos.begin(), infos.end(), [&](const DatasetInfo& info) {
          return info.spec.name == pending.spec.name;
        })) {
      continue;
    }
    DatasetInfo info;
    info.spec = pending.spec;
    info.owner = pending.caller;
    info.is_scanning = true;
    info.num_entries_scanned =
        pending.scan->num_entries.load(std::memory_order_relaxed);
    info.elapsed = clock_->Monotonic() - pending.started;
    infos.push_back(std::move(info));
  }
  return infos;
}

absl::StatusOr<DatasetUse> DatasetRegistry::Use(const std::string& name,
                                                const Caller& caller) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> found,
                            Find(name, caller));
  Entry& entry = *found;
  switch (entry.state) {
    case DatasetState::kReady:
      break;
    case DatasetState::kLoading:
      return absl::FailedPreconditionError(absl::StrCat(
          "dataset '", name, "' is still loading; wait for LoadDataset"));
    case DatasetState::kUnloading:
      return absl::FailedPreconditionError(
          absl::StrCat("dataset '", name, "' is being unloaded"));
    case DatasetState::kFailed:
      return absl::FailedPreconditionError(
          absl::StrCat("dataset '", name, "' failed to load: ",
                       entry.error.message(), "; load it again"));
  }
  ++entry.num_feeds;
  entry.last_used = clock_->Monotonic();
  return DatasetUse(this, entry.id, entry.dataset);
}

void DatasetRegistry::EndUse(uint64_t entry_id) {
  MutexLock lock(&mutex_);
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    Entry& entry = *it->second;
    if (entry.id != entry_id) continue;
    --entry.num_feeds;
    entry.last_used = clock_->Monotonic();
    if (entry.num_feeds == 0 && entry.state == DatasetState::kUnloading) {
      observer_("unloaded", InfoOf(entry), Caller());
      entries_.erase(it);
      AwaitLetGo();
    }
    return;
  }
}

bool DatasetRegistry::IsReady(uint64_t entry_id) const {
  MutexLock lock(&mutex_);
  for (const auto& [name, entry] : entries_) {
    if (entry->id == entry_id) return entry->state == DatasetState::kReady;
  }
  return false;
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetRegistry::Unload(
    const std::string& name, bool force, const Caller& caller) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(std::shared_ptr<Entry> found,
                            Find(name, caller));
  Entry& entry = *found;
  if (!caller.is_privileged && caller.uid != entry.owner.uid) {
    return absl::PermissionDeniedError(absl::StrCat(
        "dataset '", name, "' was loaded by uid ", entry.owner.uid,
        "; only that user, root and the daemon's user may unload it"));
  }
  if (entry.num_feeds > 0 && !force) {
    return absl::FailedPreconditionError(absl::StrCat(
        "dataset '", name, "' has ", entry.num_feeds,
        " open feeds; close them, or force the unload, which ends them"));
  }
  observer_("unload", InfoOf(entry), caller);
  if (entry.state == DatasetState::kLoading) {
    Cancel(entry);
    entry.holders.clear();
    return nullptr;
  }
  if (entry.num_feeds > 0) {
    entry.state = DatasetState::kUnloading;
    entry.holders.clear();
    return entry.dataset;
  }
  observer_("unloaded", InfoOf(entry), caller);
  entries_.erase(name);
  found.reset();
  AwaitLetGo();
  return nullptr;
}

void DatasetRegistry::DropHold(Entry& entry, uint64_t session_id) {
  if (entry.holders.erase(session_id) == 0) return;
  entry.last_used = clock_->Monotonic();
  if (entry.holders.empty() && entry.state == DatasetState::kLoading &&
      !entry.is_restored) {
    Cancel(entry);
  }
}

absl::Status DatasetRegistry::Release(const std::string& name,
                                      const Caller& caller) {
  MutexLock lock(&mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return NotFound(name, caller);
  DropHold(*found->second, caller.session_id);
  return absl::OkStatus();
}

void DatasetRegistry::ReleaseSession(uint64_t session_id) {
  MutexLock lock(&mutex_);
  for (auto& [name, entry] : entries_) DropHold(*entry, session_id);
  for (PendingScan& pending : scans_) {
    if (pending.caller.session_id != session_id) continue;
    pending.scan->is_cancelled.store(true, std::memory_order_relaxed);
  }
}

}  // namespace datasetd
