#include "server/feed/feed.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/chain_scratch.h"

namespace datasetd {
namespace {

// Rows of Feed::indices_, and of Feed::device_indices_.
int64_t NumHostRows(const Backend& backend, int64_t num_slots) {
  return backend.info().is_host ? num_slots : 2 * num_slots;
}
int64_t NumDeviceRows(const Backend& backend, int64_t num_slots,
                      bool is_staged) {
  if (backend.info().is_host) return 0;
  return (is_staged ? 2 : 1) *
         std::min<int64_t>(num_slots, kMaxBatchesPerLaunch);
}

// Smaller samples share pages with others, and are found in memory more often
// than it is worth to ask.
constexpr int64_t kMinPrefetchBytes = 16 << 10;
// An estimate of the time that one call of Prefetch takes: for each sample,
// and for its bytes.
constexpr int64_t kPrefetchNanoseconds = 1000;
constexpr int64_t kPrefetchBytesPerNanosecond = 16;
// Rows of a mapped file that are taken between two looks at what they cost.
constexpr int64_t kPrefetchRows = 64;

constexpr int64_t kCopiedRowNanoseconds = 2;  // of a client's order

// The longest time between two launches for which free slots are gathered: a
// turn of the device, of about 0.4 ms, is little of it. While the client has
// batches in a third of the slots, nothing is late, and slots are the limit;
// the time is for one that keeps these, and asks for more without waiting.
constexpr uint64_t kMaxGatherNanoseconds = 100'000'000;
constexpr uint64_t kMaxStockedGatherNanoseconds = 1'000'000'000;

}  // namespace

int64_t Feed::IndexBytes(const Backend& backend, int64_t num_slots,
                         int64_t batch_size, bool is_staged) {
  return SaturatingProduct(NumHostRows(backend, num_slots) +
                               NumDeviceRows(backend, num_slots, is_staged),
                           batch_size, sizeof(int64_t));
}

int64_t Feed::EntryBytes(const Backend& backend, int64_t num_slots,
                         int64_t batch_entries) {
  return IndexBytes(backend, num_slots, batch_entries, /*is_staged=*/false);
}

absl::StatusOr<std::unique_ptr<Feed>> Feed::Create(
    Options options, std::unique_ptr<ExportedMemory> slab,
    std::unique_ptr<FeedChannel> channel, std::function<void()> on_done) {
  if (options.backend == nullptr) options.backend = &options.dataset->backend();
  Backend& backend = *options.backend;
  const bool is_staged = options.staging.is_needed();
  const uint32_t num_slots = options.num_slots;
  std::vector<std::unique_ptr<AugmentProgram>> programs =
      std::move(options.other_programs);
  programs.insert(programs.begin(), std::move(options.program));
  std::unique_ptr<Sampler> sampler;
  if (options.order == nullptr) {
    DATASETD_ASSIGN_OR_RETURN(sampler, Sampler::Create(options.sampler));
  }
  // The sampler frees them when it has others.
  options.sampler.weights.reset();
  std::unique_ptr<Feed> feed(
      new Feed(std::move(options), std::move(slab), std::move(channel)));
  feed->FindMappedFields(feed->options_.sources);
  if (sampler != nullptr) {
    feed->sampler_ = std::move(sampler);
    feed->batches_per_epoch_ =
        static_cast<uint64_t>(feed->sampler_->batches_per_epoch());
  }
  feed->row_nanoseconds_ = feed->sampler_ == nullptr
                               ? kCopiedRowNanoseconds
                               : feed->sampler_->row_nanoseconds();
  const int64_t row_bytes =
      feed->options_.sampler.batch_size * static_cast<int64_t>(sizeof(int64_t));
  DATASETD_ASSIGN_OR_RETURN(
      feed->indices_,
      backend.AllocateHost(NumHostRows(backend, num_slots) * row_bytes));
  if (const int64_t rows = NumDeviceRows(backend, num_slots, is_staged);
      rows > 0) {
    DATASETD_ASSIGN_OR_RETURN(feed->device_indices_,
                              backend.Allocate(rows * row_bytes));
  }
  if (const int64_t entry_bytes = row_bytes * feed->options_.row_entries;
      entry_bytes > 0) {
    DATASETD_ASSIGN_OR_RETURN(
        feed->entries_,
        backend.AllocateHost(NumHostRows(backend, num_slots) * entry_bytes));
    if (!backend.info().is_host) {
      DATASETD_ASSIGN_OR_RETURN(
          feed->device_entries_,
          backend.Allocate(NumDeviceRows(backend, num_slots, is_staged) *
                           entry_bytes));
    }
  }
  // Programs run one after another.
  int64_t team_bytes = 0;
  for (const auto& program : programs) {
    team_bytes = std::max(team_bytes, TeamScratchBytes(*program));
  }
  const ScratchPool::Lease& lease = feed->options_.scratch;
  if (lease.has_value()) {
    for (const auto& program : programs) lease.Give(program.get());
  } else if (const ScratchPlan plan =
                 PlanScratch(team_bytes, backend.max_teams(team_bytes));
             plan.size_bytes > 0) {
    DATASETD_ASSIGN_OR_RETURN(feed->own_scratch_,
                              backend.Allocate(plan.size_bytes));
    for (const auto& program : programs) {
      plan.Give(feed->own_scratch_->data(), program.get());
    }
  }
  if (is_staged) {
    DATASETD_ASSIGN_OR_RETURN(
        feed->stager_,
        Stager::Create(feed->options_.staging, *feed->options_.dataset, backend,
                       feed->options_.uid, on_done));
  }
  for (const auto& program : programs) {
    if (is_staged) feed->stager_->SetSources(program.get());
    DATASETD_ASSIGN_OR_RETURN(feed->programs_.emplace_back(),
                              backend.Load(*program));
  }
  if (!lease.has_value()) {
    DATASETD_ASSIGN_OR_RETURN(
        feed->own_stream_,
        backend.CreateStream(std::move(on_done), {.uid = feed->options_.uid}));
  }
  if (backend.max_launch_operations() > 0 &&
      feed->options_.sample_operations > 0) {
    // All teams work at once, each on a sample where that has several passes:
    // fewer samples than teams end no earlier.
    feed->max_launch_rows_ = std::max<int64_t>(
        {1, programs.front()->num_teams,
         backend.max_launch_operations() / feed->options_.sample_operations});
  }
  feed->rest_.reserve(kMaxBatchesPerLaunch);
  feed->launches_.resize(num_slots);
  for (PendingLaunch& launch : feed->launches_) {
    DATASETD_ASSIGN_OR_RETURN(launch.event, backend.CreateEvent());
  }
  feed->SetNext(feed->options_.start);
  return feed;
}

Feed::Feed(Options options, std::unique_ptr<ExportedMemory> slab,
           std::unique_ptr<FeedChannel> channel)
    : options_(std::move(options)),
      slab_(std::move(slab)),
      channel_(std::move(channel)),
      slots_(options_.num_slots),
      num_free_(options_.num_slots) {}

Feed::~Feed() {
  // Its own stream waits when it is destroyed.
  if (own_stream_ == nullptr && !is_quiescent()) {
    (void)stream().Synchronize();
  }
}

void Feed::FindMappedFields(const std::vector<size_t>& sources) {
  const Dataset& dataset = *options_.dataset;
  if (!dataset.has_mapped_files()) return;
  for (const size_t source : sources) {
    const FieldSpec& field = dataset.fields()[source];
    if (field.is_packed() ||
        SaturatingMultiply(field.sample_bytes(), options_.window_steps) >=
            kMinPrefetchBytes) {
      mapped_fields_.push_back(source);
    }
  }
}

uint8_t* Feed::SlotData(uint32_t slot) const {
  return slab_->data() + slot * options_.slot_stride_bytes;
}

absl::Span<int64_t> Feed::IndexRow(uint32_t row) const {
  const int64_t batch_size = options_.sampler.batch_size;
  return absl::MakeSpan(
      reinterpret_cast<int64_t*>(indices_->data()) + row * batch_size,
      batch_size);
}

void Feed::SetNext(FeedPosition position) {
  if (batches_per_epoch_ > 0 && position.batch >= batches_per_epoch_) {
    position = {position.epoch + 1, 0};
  }
  next_ = position;
  stats_.next_epoch.store(next_.epoch, std::memory_order_relaxed);
  stats_.next_batch.store(next_.batch, std::memory_order_relaxed);
}

bool Feed::TakeSeek(const ring::SeekRequest& seek) {
  // Accepts any later generation, since the client may have sought twice. A
  // client's own order seeks by the blocks it sends.
  if (sampler_ == nullptr || seek.generation <= generation_ ||
      seek.epoch > kMaxEpoch || seek.batch > batches_per_epoch_) {
    stats_.num_ignored_seeks.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  generation_ = seek.generation;
  has_part_ = false;
  if (next_weights_ != nullptr) {
    discard_weights_(sampler_->SetWeights(std::move(next_weights_)));
  }
  SetNext({seek.epoch, seek.batch});
  return true;
}

bool Feed::UpdateGathering(uint64_t now_nanoseconds, size_t num_pending) {
  if (!is_gathering_) return false;
  // A pending release is a batch that the client's device still has to work on.
  const bool is_short =
      channel_->IsClientWaiting() && 4 * num_pending < slots_.size();
  const bool is_stocked = 3 * (num_published_ - num_pending) >= slots_.size();
  gather_end_nanoseconds_ =
      last_launch_nanoseconds_ +
      (is_stocked ? kMaxStockedGatherNanoseconds : kMaxGatherNanoseconds);
  is_gathering_ = 3 * size_t{num_free_} < slots_.size() && !is_short &&
                  now_nanoseconds < gather_end_nanoseconds_;
  return !is_gathering_ && num_free_ > 0;
}

std::optional<uint64_t> Feed::gathers_until() const {
  if (!is_gathering_ || num_free_ == 0 || is_stopped_) return std::nullopt;
  return gather_end_nanoseconds_;
}

bool Feed::Scan(uint64_t now_nanoseconds) {
  bool changed = false;
  size_t num_pending = 0;
  has_pending_release_ = false;
  if (const auto seek = channel_->ReadSeek(); seek.has_value()) {
    changed = TakeSeek(*seek);
  }
  for (uint32_t i = 0; i < slots_.size() && num_published_ > 0; ++i) {
    Slot& slot = slots_[i];
    if (slot.state != SlotState::kPublished) continue;
    const uint64_t done = channel_->ReleaseDone(i);
    if (done == slot.sequence) {
      slot.state = SlotState::kFree;
      slot.last_release = done;
      ++num_free_;
      --num_published_;
      changed = true;
    } else {
      if (done != slot.last_release) {
        slot.last_release = done;
        stats_.num_ignored_releases.fetch_add(1, std::memory_order_relaxed);
      }
      if (channel_->IsReleaseRequested(i, slot.sequence)) {
        has_pending_release_ = true;
        ++num_pending;
      }
    }
  }
  changed |= UpdateGathering(now_nanoseconds, num_pending);
  const bool waits = num_published_ == slots_.size();
  if (is_waiting_) {
    stats_.daemon_wait_nanoseconds.fetch_add(
        now_nanoseconds - waiting_since_nanoseconds_,
        std::memory_order_relaxed);
  }
  is_waiting_ = waits;
  waiting_since_nanoseconds_ = now_nanoseconds;
  stats_.num_slots_held.store(num_published_, std::memory_order_relaxed);
  return changed;
}

absl::StatusOr<int> Feed::Collect() {
  int num_ended = 0;
  while (num_running_launches_ > 0) {
    PendingLaunch& launch = launches_[first_launch_];
    const bool is_cut = has_rest_ && num_running_launches_ == 1;
    if (!is_cut || is_part_running_) {
      DATASETD_ASSIGN_OR_RETURN(const bool is_done, launch.event->IsDone());
      if (!is_done) break;
      ++num_ended;
    }
    if (is_cut) {
      is_part_running_ = false;
      if (!IsDropped(launch)) break;
      has_rest_ = false;
    }
    // After the samples were read.
    const bool is_dropped =
        IsDropped(launch) || !options_.dataset->status().ok();
    uint64_t num_published = 0;
    for (int i = 0; i < launch.num_batches; ++i) {
      PendingBatch& pending = launch.batches[i];
      Slot& slot = slots_[pending.slot];
      if (is_dropped) {
        slot.state = SlotState::kFree;
        ++num_free_;
        continue;
      }
      slot.state = SlotState::kPublished;
      slot.sequence = ++last_sequence_;
      ++num_published_;
      ++num_published;
      pending.batch.sequence = slot.sequence;
      // Count first, so that a client that has the batch finds it counted.
      stats_.num_batches.fetch_add(1, std::memory_order_relaxed);
      stats_.num_samples.fetch_add(pending.batch.num_samples,
                                   std::memory_order_relaxed);
      channel_->Publish(pending.slot, pending.batch);
    }
    if (num_published > 0) {
      stats_.hand_over.Record(
          MonotonicNanoseconds() - launch.started_nanoseconds, num_published);
    }
    first_launch_ = (first_launch_ + 1) % static_cast<int>(launches_.size());
    --num_running_launches_;
  }
  return num_ended;
}

bool Feed::CanLaunch() const {
  if (is_stopped_) return false;
  if (has_rest_) return !is_part_running_;
  // Nothing else may be left to launch where an error waits to be told.
  if (!options_.dataset->status().ok()) return true;
  if (num_free_ == 0 || is_gathering_) return false;
  if (sampler_ == nullptr) return has_part_ || options_.order->HasNext();
  return batches_per_epoch_ > 0 && next_.epoch <= kMaxEpoch;
}

int64_t Feed::Prefetch(absl::Span<const int64_t> indices) const {
  int64_t nanoseconds = 0;
  for (const int64_t index :
       mapped_fields_.empty() ? absl::Span<const int64_t>() : indices) {
    const auto [dataset, sample] = options_.dataset->Locate(index);
    if (dataset->file() == nullptr) continue;
    for (const size_t field : mapped_fields_) {
      int64_t from = 0;
      int64_t size = 0;
      if (const RaggedIndex* const ragged = dataset->field_index(field)) {
        from = ragged->samples()[static_cast<size_t>(sample)].offset_bytes;
        size = ragged->sample_bytes(sample);
      } else {
        const int64_t sample_bytes = dataset->fields()[field].sample_bytes();
        from = sample * sample_bytes;
        size = sample_bytes * options_.window_steps;
      }
      dataset->file()->Prefetch(dataset->field_data(field) + from, size);
      nanoseconds += kPrefetchNanoseconds + size / kPrefetchBytesPerNanosecond;
    }
  }
  return nanoseconds;
}

bool Feed::BeginPart(uint32_t slot, uint32_t row) {
  part_ = {.slot = slot, .indices = IndexRow(row)};
  BatchTask& task = part_.task;
  task.slot = SlotData(slot);
  task.indices = part_.indices.data();
  if (entries_ != nullptr) {
    part_.entries = reinterpret_cast<int64_t*>(entries_->data()) +
                    row * options_.sampler.batch_size * options_.row_entries;
    task.samples = task.indices;
    task.indices = part_.entries;
  }
  ring::SlotDescriptor& published = part_.batch;
  published.generation = generation_;
  if (sampler_ == nullptr) {
    ClientOrder::Batch batch;
    if (!options_.order->Take(generation_, part_.indices, &batch)) return false;
    next_ = batch.position;
    task.num_samples = static_cast<int32_t>(batch.num_samples);
    if (!options_.draws_by_sample) {
      task.first_draw = batch.first_row;
      task.draw_step = options_.sampler.world_size;
    }
  } else {
    if (next_.epoch > kMaxEpoch) return false;
    const Sampler::BatchShape shape = sampler_->Shape(next_.batch);
    task.num_samples = static_cast<int32_t>(shape.num_samples);
    published.num_padding = static_cast<uint32_t>(shape.num_padding);
    if (options_.sampler.repeats_samples()) {
      task.first_draw =
          static_cast<int64_t>(sampler_->FirstPosition(next_.batch));
      task.draw_step = options_.sampler.world_size;
    } else if (options_.sampler.groups != nullptr) {
      const int64_t group_size = options_.sampler.group_size;
      task.first_draw =
          static_cast<int64_t>(sampler_->FirstPosition(next_.batch)) *
          group_size;
      task.draw_step = options_.sampler.world_size * group_size;
      task.draw_group = static_cast<int32_t>(group_size);
    }
  }
  // Batch indices are interleaved over the ranks, as samples are.
  task.batch_index = static_cast<uint32_t>(
      next_.batch * static_cast<uint64_t>(options_.sampler.world_size) +
      static_cast<uint64_t>(options_.sampler.rank));
  task.epoch = next_.epoch;
  published.epoch = next_.epoch;
  published.batch = next_.batch;
  published.num_samples = static_cast<uint32_t>(task.num_samples);
  has_part_ = true;
  return true;
}

bool Feed::TakeRows(int64_t* nanoseconds) {
  if (sampler_ != nullptr && !sampler_->BuildOrder(next_.epoch, nanoseconds)) {
    return false;
  }
  int64_t num_left = part_.task.num_samples - part_.num_rows_taken;
  do {
    int64_t num_rows = std::min(
        num_left, std::max<int64_t>(1, *nanoseconds / row_nanoseconds_));
    if (!mapped_fields_.empty()) num_rows = std::min(num_rows, kPrefetchRows);
    const absl::Span<int64_t> rows =
        part_.indices.subspan(static_cast<size_t>(part_.num_rows_taken),
                              static_cast<size_t>(num_rows));
    if (sampler_ != nullptr) {
      sampler_->FillRows(
          next_.epoch, next_.batch, part_.num_rows_taken, rows,
          entries_ == nullptr
              ? nullptr
              : part_.entries + part_.num_rows_taken * options_.row_entries);
    }
    *nanoseconds -= num_rows * row_nanoseconds_ + Prefetch(rows);
    part_.num_rows_taken += static_cast<int32_t>(num_rows);
    num_left -= num_rows;
  } while (num_left > 0 && *nanoseconds >= row_nanoseconds_);
  if (num_left > 0) return false;
  has_part_ = false;
  SetNext({next_.epoch, next_.batch + 1});
  return true;
}

bool Feed::IsNextWithin(int64_t nanoseconds) const {
  int64_t num_rows = options_.sampler.batch_size;
  if (sampler_ != nullptr) {
    nanoseconds -= sampler_->TableNanoseconds(next_.epoch);
    num_rows = sampler_->Shape(next_.batch).num_samples;
  }
  return num_rows * row_nanoseconds_ <= nanoseconds;
}

absl::Status Feed::CopyIndices(absl::Span<BatchTask> tasks) {
  if (device_indices_ == nullptr) return absl::OkStatus();
  if (entries_ != nullptr) {
    // Both are where the launch's first row is, and so are their copies.
    const int64_t* BatchTask::*const lists[] = {&BatchTask::samples,
                                                &BatchTask::indices};
    DeviceMemory* const memory[] = {device_indices_.get(),
                                    device_entries_.get()};
    const int64_t sizes[] = {1, options_.row_entries};
    for (int i = 0; i < 2; ++i) {
      const int64_t* const first = tasks.front().*lists[i];
      const int64_t count =
          tasks.back().*lists[i] - first + tasks.back().num_samples * sizes[i];
      auto* const copy = reinterpret_cast<int64_t*>(memory[i]->data());
      DATASETD_RETURN_IF_ERROR(stream().CopyToDevice(
          memory[i]->data(), reinterpret_cast<const uint8_t*>(first),
          static_cast<size_t>(count) * sizeof(int64_t)));
      for (BatchTask& task : tasks) {
        task.*lists[i] = copy + (task.*lists[i] - first);
      }
    }
    return absl::OkStatus();
  }
  const int64_t* const from = tasks.front().indices;
  const int64_t num_indices =
      tasks.back().indices - from + tasks.back().num_samples;
  // The launches that read the copies before have ended by then: those of the
  // stream, or, where samples are staged, the one before the last.
  auto* to = reinterpret_cast<int64_t*>(device_indices_->data());
  if (stager_ != nullptr) {
    to += stager_->half() * static_cast<int64_t>(device_indices_->size_bytes() /
                                                 (2 * sizeof(int64_t)));
  }
  Stream& copier = stager_ != nullptr ? stager_->stream() : stream();
  DATASETD_RETURN_IF_ERROR(copier.CopyToDevice(
      reinterpret_cast<uint8_t*>(to), reinterpret_cast<const uint8_t*>(from),
      static_cast<size_t>(num_indices) * sizeof(int64_t)));
  for (BatchTask& task : tasks) task.indices = to + (task.indices - from);
  return absl::OkStatus();
}

absl::Status Feed::LaunchPart(PendingLaunch& launch) {
  if (stager_ == nullptr || stager_->IsStaged(rest_.front().first_row)) {
    return AugmentRest(launch);
  }
  DATASETD_RETURN_IF_ERROR(stager_->Stage(rest_.front().first_row));
  DATASETD_RETURN_IF_ERROR(stager_->stream().Record(*launch.event));
  has_rest_ = true;
  is_part_running_ = true;
  return absl::OkStatus();
}

absl::Status Feed::Augment(absl::Span<const BatchTask> tasks) {
  for (const auto& program : programs_) {
    DATASETD_RETURN_IF_ERROR(stream().Augment(*program, tasks));
  }
  return absl::OkStatus();
}

absl::Status Feed::AugmentRest(PendingLaunch& launch) {
  if (rest_.size() > 1) {
    DATASETD_RETURN_IF_ERROR(Augment(rest_));
    has_rest_ = false;
  } else {
    BatchTask part = rest_.front();
    int64_t num_rows = part.num_samples - part.first_row;
    if (max_launch_rows_ > 0) num_rows = std::min(num_rows, max_launch_rows_);
    if (stager_ != nullptr) {
      num_rows =
          std::min<int64_t>(num_rows, stager_->staged_end() - part.first_row);
    }
    part.num_rows = static_cast<int32_t>(num_rows);
    rest_.front().first_row += NumRows(part);
    DATASETD_RETURN_IF_ERROR(Augment(absl::MakeConstSpan(&part, 1)));
    has_rest_ = !IsLastPart(part);
  }
  DATASETD_RETURN_IF_ERROR(stream().Record(*launch.event));
  is_part_running_ = has_rest_;
  return absl::OkStatus();
}

bool Feed::TakeBatches(int max_batches, PendingLaunch& launch,
                       BatchTask* tasks) {
  // A client without a batch gets one first, without waiting for more.
  const bool is_starving = num_published_ == 0 && num_running_launches_ == 0;
  auto num_batches = std::min<uint32_t>(
      {num_free_, is_starving ? 1 : static_cast<uint32_t>(max_batches),
       kMaxBatchesPerLaunch});
  launch.generation = generation_;
  launch.started_nanoseconds = MonotonicNanoseconds();
  launch.num_batches = 0;
  const auto num_rows = static_cast<uint32_t>(2 * slots_.size());
  if (has_part_) {
    // It has row next_row_.
    num_batches = std::min(num_batches, num_rows - next_row_);
  } else if (next_row_ + num_batches > num_rows) {
    next_row_ = 0;
  }
  int64_t nanoseconds = kMaxOrderNanoseconds;
  for (uint32_t i = 0; std::cmp_less(launch.num_batches, num_batches);) {
    if (!has_part_) {
      if (launch.num_batches > 0 && !IsNextWithin(nanoseconds)) break;
      while (slots_[i].state != SlotState::kFree) ++i;
      if (!BeginPart(i, device_indices_ == nullptr ? i : next_row_)) break;
    }
    if (!TakeRows(&nanoseconds)) break;
    ++next_row_;
    slots_[part_.slot].state = SlotState::kRunning;
    --num_free_;
    tasks[launch.num_batches] = part_.task;
    launch.batches[launch.num_batches++] = {.slot = part_.slot,
                                            .batch = part_.batch};
  }
  return launch.num_batches > 0;
}

absl::StatusOr<bool> Feed::Launch(int max_batches) {
  DATASETD_RETURN_IF_ERROR(options_.dataset->status());
  absl::StatusOr<bool> has_started = LaunchNext(max_batches);
  // A part of it may run, of which no event will tell.
  if (!has_started.ok()) (void)stream().Synchronize();
  return has_started;
}

absl::StatusOr<bool> Feed::LaunchNext(int max_batches) {
  const auto launch_at = [this](int place) -> PendingLaunch& {
    return launches_[static_cast<size_t>(first_launch_ + place) %
                     launches_.size()];
  };
  if (has_rest_) {
    DATASETD_RETURN_IF_ERROR(LaunchPart(launch_at(num_running_launches_ - 1)));
    return true;
  }
  if (sampler_ == nullptr) {
    const uint64_t generation = options_.order->generation();
    if (generation != generation_) has_part_ = false;
    generation_ = generation;
  }
  PendingLaunch& launch = launch_at(num_running_launches_);
  BatchTask tasks[kMaxBatchesPerLaunch];
  if (max_launch_rows_ > 0) {
    max_batches = static_cast<int>(std::clamp<int64_t>(
        max_launch_rows_ / options_.sampler.batch_size, 1, max_batches));
  }
  if (stager_ != nullptr) {
    max_batches = std::min(max_batches, stager_->max_batches());
  }
  if (!TakeBatches(max_batches, launch, tasks)) return false;
  const auto taken = absl::MakeSpan(tasks, launch.num_batches);
  if (stager_ != nullptr) stager_->Begin(taken);
  DATASETD_RETURN_IF_ERROR(CopyIndices(taken));
  if (stager_ != nullptr) stager_->NamePlaces(taken);
  if (stager_ != nullptr ||
      (max_launch_rows_ > 0 && tasks[0].num_samples > max_launch_rows_)) {
    rest_.assign(taken.begin(), taken.end());
    DATASETD_RETURN_IF_ERROR(LaunchPart(launch));
  } else {
    DATASETD_RETURN_IF_ERROR(Augment(taken));
    DATASETD_RETURN_IF_ERROR(stream().Record(*launch.event));
  }
  ++num_running_launches_;
  stats_.num_launches.fetch_add(1, std::memory_order_relaxed);
  last_launch_nanoseconds_ = launch.started_nanoseconds;
  is_gathering_ = num_free_ == 0 && !backend().info().is_host;
  gather_end_nanoseconds_ = last_launch_nanoseconds_ + kMaxGatherNanoseconds;
  return true;
}

bool Feed::PrepareNextEpoch() {
  if (is_stopped_ || batches_per_epoch_ == 0) return false;
  // Before an epoch's first batch its own order may be missing.
  const uint64_t epoch = next_.batch == 0 ? next_.epoch : next_.epoch + 1;
  if (prepared_epoch_ == epoch) return false;
  if (sampler_->Prepare(epoch, kMaxOrderNanoseconds)) prepared_epoch_ = epoch;
  return true;
}

void Feed::SetWeights(
    std::shared_ptr<const WeightTable> weights,
    std::function<void(std::shared_ptr<const WeightTable>)> discard) {
  if (const auto seek = channel_->ReadSeek(); seek.has_value()) {
    TakeSeek(*seek);
  }
  discard_weights_ = std::move(discard);
  if (next_weights_ != nullptr) discard_weights_(std::move(next_weights_));
  next_weights_ = std::move(weights);
}

void Feed::Stop() {
  if (is_stopped_) return;
  is_stopped_ = true;
  channel_->Close();
  // The pool's stream also has other feeds' work.
  if (own_stream_ != nullptr) own_stream_->Cancel();
}

std::unique_ptr<ExportedMemory> Feed::TakeSlab() { return std::move(slab_); }

}  // namespace datasetd
