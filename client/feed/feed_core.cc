#include "client/feed/feed_core.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/nvtx_range.h"
#include "base/status_macros.h"
#include "client/connection/error_detail.h"
#include "client/feed/copied_tensor.h"
#include "client/feed/feed_closer.h"

// Note [Slot release] ~~~~~~~~~~~~~~~~~~~ The thread that drops the last holder
// sets the slot's bit in pending_ and, under mutex_, processes all of pending_:
// it makes the batch's first stream wait for the others, lets it write
// release_done, and stores release_requested. A slot whose stream is being
// captured into a graph stays in pending_, since the write would become part of
// the graph; the next release or wait retries, and FeedCloser once the feed is
// closed.
//
// The mutex orders the writes for one slot. Once release_done holds the
// sequence, the daemon may publish the slot again and another thread may take
// and release it; the first thread must not overwrite that thread's
// release_requested. For the same reason a Slot is not accessed after is_held
// was cleared.

// Note [Waking for several releases] ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ Waking a
// sleeping daemon costs the releasing thread a system call and often its core:
// tens of microseconds per step of a job that is slower than the daemon. So
// releases wake it only when a quarter of the slots that are not held are
// unreported; it then fills them together. This delays no batch: Next wakes the
// daemon before it waits, and while it waits every release does.

namespace datasetd::client {
namespace {

constexpr absl::Duration kWaitStep = absl::Milliseconds(100);
// Longest time between the ring's end and the GOODBYE that explains it.
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(1);

void FutexWait(const std::atomic<uint32_t>* word, uint32_t value,
               absl::Duration timeout) {
  const timespec limit = absl::ToTimespec(timeout);
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

// CU_STREAM_PER_THREAD, which the driver resolves in the thread that calls. A
// batch may be released on any.
constexpr uint64_t kStreamPerThread = 2;

absl::Status CheckStream(uint64_t stream) {
  if (stream != kStreamPerThread) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "stream: 2 (CU_STREAM_PER_THREAD) is another stream on each thread, and "
      "a batch that is released on another would not wait for this one: pass a "
      "real stream, one of cuStreamCreate or torch.cuda.Stream, or 0");
}

absl::Status ProtocolError(const std::string& what) {
  return absl::InternalError(
      absl::StrCat("the daemon broke the ring's protocol: ", what));
}

}  // namespace

FeedCore* FeedCore::Create(Parts parts) {
  return new FeedCore(std::move(parts));
}

FeedCore::FeedCore(Parts parts)
    : fork_generation_(ForkGeneration()),
      layout_(std::move(parts.layout)),
      num_holders_(static_cast<uint32_t>(layout_.num_fields()) + 2),
      lease_(std::move(parts.lease)),
      event_(std::move(parts.event)),
      pages_(std::move(parts.pages)),
      slab_(std::move(parts.slab)),
      ring_(pages_.daemon(), pages_.client(), layout_.num_slots()),
      cursor_(parts.cursor),
      holders_(std::make_unique<std::atomic<uint32_t>[]>(layout_.num_slots() *
                                                         num_holders_)),
      tensors_(std::make_unique<FieldTensor[]>(layout_.num_slots() *
                                               (layout_.num_fields() + 1))) {
  if (slab_.cuda() != nullptr) {
    // If this fails, host functions write the page.
    (void)slab_.cuda()->RegisterHostMemory(pages_.client(),
                                           sizeof(ring::ClientPage));
  }
}

DLDevice FeedCore::device() const {
  if (slab_.cuda() == nullptr) return {kDLCPU, 0};
  return {kDLCUDA, slab_.cuda()->ordinal()};
}

absl::StatusOr<BatchInfo> FeedCore::Next(uint64_t stream,
                                         absl::Duration timeout) {
  if (!is_this_process()) return ForkedError("this feed");
  if (slab_.cuda() != nullptr) DATASETD_RETURN_IF_ERROR(CheckStream(stream));
  if (cursor_.num_sent() == 0) {
    DATASETD_RETURN_IF_ERROR(cursor_.CheckOrder());
  }
  std::optional<absl::Duration> deadline;
  for (;;) {
    DATASETD_RETURN_IF_ERROR(CheckDevice());
    const std::optional<uint32_t> slot = ring_.Poll(next_sequence_);
    if (slot.has_value()) {
      bool is_stale = false;
      absl::StatusOr<BatchInfo> info = Take(*slot, stream, &is_stale);
      if (!is_stale) return info;
      continue;
    }
    if (!deadline.has_value()) deadline = MonotonicNow() + timeout;
    DATASETD_RETURN_IF_ERROR(Wait(*deadline));
  }
}

// Takes the published slot of next_sequence_.
absl::StatusOr<BatchInfo> FeedCore::Take(uint32_t index, uint64_t stream,
                                         bool* is_stale) {
  if (!failure_.ok()) return failure_;
  if (index >= layout_.num_slots()) {
    return Fail(ProtocolError(
        absl::StrCat("slot ", index, " of ", layout_.num_slots())));
  }
  const ring::SlotDescriptor descriptor = ring_.descriptor(index);
  Slot& slot = slots_[index];
  if (slot.is_held.load(std::memory_order_acquire)) {
    return Fail(ProtocolError(
        absl::StrCat("slot ", index, " was published while it is held")));
  }
  if (descriptor.sequence != next_sequence_ ||
      descriptor.generation > cursor_.generation() ||
      descriptor.num_samples == 0 ||
      descriptor.num_samples > layout_.batch_size() ||
      descriptor.num_padding > descriptor.num_samples) {
    return Fail(ProtocolError(
        absl::StrCat("the descriptor of batch ", next_sequence_,
                     " says sequence ", descriptor.sequence, ", generation ",
                     descriptor.generation, ", ", descriptor.num_samples,
                     " samples, ", descriptor.num_padding, " padding")));
  }
  if (descriptor.generation < cursor_.generation()) {
    // The batch precedes the last seek. It was never used, so the release need
    // not wait.
    ++next_sequence_;
    *is_stale = true;
    std::lock_guard lock(mutex_);
    ring_.CompleteRelease(index, descriptor.sequence);
    if (ring_.RequestRelease(index, descriptor.sequence)) Wake();
    return BatchInfo{};
  }
  if (!cursor_.IsDue(descriptor.epoch, descriptor.batch)) {
    return Fail(ProtocolError(
        absl::StrCat("epoch ", descriptor.epoch, " batch ", descriptor.batch,
                     " came where epoch ", cursor_.epoch(), " batch ",
                     cursor_.batch(), " was due")));
  }
  ++next_sequence_;
  cursor_.Pass(descriptor.epoch, descriptor.batch);
  slot.sequence = descriptor.sequence;
  slot.streams[0] = stream;
  slot.num_streams = 1;
  slot.is_held.store(true, std::memory_order_relaxed);
  slot.references.store(1, std::memory_order_release);
  holders_[index * num_holders_ + batch_holder()].fetch_add(
      1, std::memory_order_relaxed);
  num_held_.fetch_add(1, std::memory_order_relaxed);
  references_.fetch_add(1, std::memory_order_relaxed);
  return BatchInfo{.sequence = descriptor.sequence,
                   .epoch = descriptor.epoch,
                   .batch = descriptor.batch,
                   .slot = index,
                   .num_samples = descriptor.num_samples,
                   .num_padding = descriptor.num_padding};
}

// Blocks until next_sequence_ is published.
absl::Status FeedCore::Wait(absl::Duration deadline) {
  const NvtxRange range("wait");
  absl::Duration counted = MonotonicNow();
  absl::Status status;
  bool is_done = false;
  SetWaiting(true);
  while (status.ok() && !is_done) {
    status = WaitStep(deadline, &is_done);
    // As it goes, so that a wait without end is seen.
    const absl::Duration now = MonotonicNow();
    waited_ += now - counted;
    ring_.AddWaited(
        static_cast<uint64_t>(absl::ToInt64Nanoseconds(now - counted)));
    counted = now;
  }
  SetWaiting(false);
  return status;
}

absl::Status FeedCore::WaitStep(absl::Duration deadline, bool* is_done) {
  if (!failure_.ok()) return failure_;
  DATASETD_RETURN_IF_ERROR(cursor_.CheckMoreComes());
  if (has_pending_.load(std::memory_order_relaxed)) {
    int num_released;
    {
      std::lock_guard lock(mutex_);
      num_released = ReleasePending();
    }
    Unreference(num_released);
  }
  DATASETD_RETURN_IF_ERROR(CheckDevice());
  if (num_held_.load(std::memory_order_relaxed) == layout_.num_slots()) {
    DATASETD_RETURN_IF_ERROR(CheckSlotComesBack());
  }
  if (absl::Status ended = lease_.Check(absl::ZeroDuration()); !ended.ok()) {
    // Batches published before the end are still returned.
    *is_done = ring_.Poll(next_sequence_).has_value();
    return *is_done ? absl::OkStatus() : Fail(std::move(ended));
  }

  uint32_t word;
  const bool must_wake = ring_.BeginWait(&word);
  *is_done = ring_.Poll(next_sequence_).has_value();
  const bool is_closed = ring_.IsClosed();
  const absl::Duration left = deadline - MonotonicNow();
  if (!*is_done && !is_closed && left > absl::ZeroDuration()) {
    if (must_wake) Wake();
    FutexWait(ring_.wake_word(), word, std::min(left, kWaitStep));
  }
  ring_.EndWait();
  *is_done = *is_done || ring_.Poll(next_sequence_).has_value();
  if (*is_done) return absl::OkStatus();
  if (is_closed) {
    absl::Status ended = lease_.Check(kGoodbyeTimeout);
    if (ended.ok()) {
      ended = ProtocolError("the ring was closed without a GOODBYE");
    }
    return Fail(std::move(ended));
  }
  if (MonotonicNow() >= deadline) {
    return absl::DeadlineExceededError("no batch was ready in time");
  }
  return absl::OkStatus();
}

absl::Status FeedCore::Fail(absl::Status status) {
  failure_ = std::move(status);
  return failure_;
}

absl::Status FeedCore::CheckDevice() {
  if (!has_device_failed_.load(std::memory_order_acquire)) {
    return absl::OkStatus();
  }
  std::lock_guard lock(mutex_);
  return Fail(device_failure_);
}

// An error if every slot has a holder, or waits for the end of a graph capture,
// which this thread may be in. A slot whose last holder is being dropped still
// comes back.
absl::Status FeedCore::CheckSlotComesBack() {
  uint32_t num_captured = 0;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t slot = 0; slot < layout_.num_slots(); ++slot) {
      if ((pending_ >> slot & 1) != 0) {
        ++num_captured;
      } else if (slots_[slot].references.load(std::memory_order_relaxed) == 0) {
        return absl::OkStatus();
      }
    }
  }
  return AllHeldError(num_captured);
}

absl::Status FeedCore::AllHeldError(uint32_t num_captured) const {
  std::string kept;
  for (uint32_t holder = 0; holder < num_holders_; ++holder) {
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < layout_.num_slots(); ++slot) {
      count += holders_[slot * num_holders_ + holder].load(
          std::memory_order_relaxed);
    }
    if (count == 0) continue;
    absl::StrAppend(
        &kept, kept.empty() ? "" : ", ", count, " of ",
        holder == batch_holder()
            ? std::string("the batches themselves")
            : absl::StrCat("'", layout_.fields()[holder].name, "'"));
  }
  std::string remedy;
  if (num_captured > 0) {
    absl::StrAppend(&kept, kept.empty() ? "" : ", ", num_captured,
                    " wait for the end of the capture of a stream");
    remedy = "end the capture, or take batches outside of it";
  }
  if (num_captured < layout_.num_slots()) {
    absl::StrAppend(&remedy, remedy.empty() ? "" : "; or ",
                    "keep copies instead (.clone()), drop what is not needed, "
                    "or open the feed with a larger prefetch");
  }
  return WithDetail(absl::FailedPreconditionError(absl::StrCat(
                        "all ", layout_.num_slots(),
                        " slots of the feed are kept alive by this process (",
                        kept, "), so no batch can come: ", remedy)),
                    ErrorDetail::kAllSlotsHeld);
}

absl::Status FeedCore::Seek(uint64_t epoch, uint64_t batch) {
  if (!is_this_process()) return ForkedError("this feed");
  if (!failure_.ok()) return failure_;
  DATASETD_ASSIGN_OR_RETURN(const bool is_to_tell, cursor_.Seek(epoch, batch));
  if (is_to_tell && ring_.Seek({cursor_.generation(), epoch, batch})) Wake();
  return absl::OkStatus();
}

absl::Status FeedCore::SetWeights(const GuardedFd& weights,
                                  const CallLimits& limits) {
  if (!is_this_process()) return ForkedError("this feed");
  if (!failure_.ok()) return failure_;
  // Before the answer, which may not be waited for.
  cursor_.ChangeOrder();
  return lease_.SetWeights(weights, limits);
}

absl::Status FeedCore::ExplainedByLease(const absl::Status& status,
                                        absl::Duration timeout) {
  absl::Status ended = lease_.Check(timeout);
  return ended.ok() ? status : ended;
}

void FeedCore::Close() {
  if (!is_this_process()) return;
  int num_released;
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    num_released = ReleasePending();
    RetryIfClosed();
  }
  // The caller's own reference keeps this object alive. The lease stays open
  // until batches are released, and on a GPU until work that uses the slab
  // ends.
  if (slab_.cuda() != nullptr ||
      references_.load(std::memory_order_acquire) > num_released + 1) {
    lease_.SendClosing();
  }
  Unreference(num_released + 1);
}

void FeedCore::Hold(uint32_t slot, uint32_t holder) {
  holders_[slot * num_holders_ + holder].fetch_add(1,
                                                   std::memory_order_relaxed);
  slots_[slot].references.fetch_add(1, std::memory_order_relaxed);
}

void FeedCore::Drop(uint32_t slot, uint32_t holder) {
  if (!is_this_process()) return;
  holders_[slot * num_holders_ + holder].fetch_sub(1,
                                                   std::memory_order_relaxed);
  if (slots_[slot].references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    ReleaseSlot(slot);
  }
}

absl::Status FeedCore::CopyToHost(void* to, const void* from,
                                  size_t size_bytes) const {
  if (!is_this_process()) return ForkedError("this batch");
  if (slab_.cuda() != nullptr) {
    return slab_.cuda()->CopyToHost(to, from, size_bytes);
  }
  memcpy(to, from, size_bytes);
  return absl::OkStatus();
}

absl::Status FeedCore::RecordStream(uint32_t slot_index, uint64_t stream) {
  if (!is_this_process()) return ForkedError("this batch");
  // On the host a batch is unused once it is dropped.
  if (slab_.cuda() == nullptr) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(CheckStream(stream));
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[slot_index];
  for (int i = 0; i < slot.num_streams; ++i) {
    if (slot.streams[i] == stream) return absl::OkStatus();
  }
  if (slot.num_streams == kMaxStreamsPerBatch) {
    return absl::ResourceExhaustedError(
        absl::StrCat("record_stream: a batch belongs to at most ",
                     kMaxStreamsPerBatch, " streams"));
  }
  slot.streams[slot.num_streams++] = stream;
  return absl::OkStatus();
}

void FeedCore::ReleaseSlot(uint32_t slot) {
  const NvtxRange range("release");
  int num_released;
  {
    std::lock_guard lock(mutex_);
    pending_ |= uint64_t{1} << slot;
    num_released = ReleasePending();
    RetryIfClosed();
  }
  Unreference(num_released);
}

void FeedCore::RetryIfClosed() {
  if (!is_closed_ || pending_ == 0 || is_retrying_) return;
  is_retrying_ = true;
  references_.fetch_add(1, std::memory_order_relaxed);
  FeedCloser::Add([this] { return RetryPending(); });
}

bool FeedCore::RetryPending() {
  int num_released;
  bool is_done;
  {
    std::lock_guard lock(mutex_);
    num_released = ReleasePending();
    is_done = pending_ == 0;
    is_retrying_ = !is_done;
  }
  Unreference(num_released + (is_done ? 1 : 0));
  return is_done;
}

int FeedCore::ReleasePending() {
  int num_released = 0;
  for (uint64_t left = pending_; left != 0; left &= left - 1) {
    const int slot = __builtin_ctzll(left);
    if (TryRelease(slot)) {
      pending_ &= ~(uint64_t{1} << slot);
      ++num_released;
    }
  }
  has_pending_.store(pending_ != 0, std::memory_order_relaxed);
  return num_released;
}

bool FeedCore::TryRelease(uint32_t index) {
  Slot& slot = slots_[index];
  CudaDriver* const cuda = slab_.cuda();
  uint64_t stream = slot.streams[0];
  const uint64_t sequence = slot.sequence;
  absl::Status told;
  if (cuda != nullptr) {
    for (int i = 0; i < slot.num_streams; ++i) {
      if (cuda->IsCapturing(slot.streams[i])) return false;
    }
    if (slot.num_streams > 1) {
      // The job's own streams do not wait for each other.
      stream = cuda->own_stream();
      for (int i = 0; i < slot.num_streams && told.ok(); ++i) {
        told = cuda->AwaitStream(slot.streams[i]);
        if (!told.ok()) told = NotGivenBack(slot.streams[i], told);
      }
    }
  }
  num_held_.fetch_sub(1, std::memory_order_relaxed);
  slot.is_held.store(false, std::memory_order_release);
  if (cuda == nullptr) {
    ring_.CompleteRelease(index, sequence);
  } else if (told.ok()) {
    told = TellDevice(index, stream, sequence);
  }
  if (!told.ok()) {
    // The slot is lost: nothing tells when the device is done with it. A stream
    // that was destroyed still does what it was given.
    device_failure_ = std::move(told);
    has_device_failed_.store(true, std::memory_order_release);
    return true;
  }
  if (!ring_.RequestRelease(index, sequence)) {
    // The daemon is awake and checks every slot again before it sleeps.
    num_untold_ = 0;
    return true;
  }
  ++num_untold_;
  const uint32_t num_free =
      layout_.num_slots() - num_held_.load(std::memory_order_relaxed);
  // See Note [Waking for several releases].
  if (is_waiting_ || 4 * num_untold_ >= num_free) {
    num_untold_ = 0;
    Wake();
  }
  return true;
}

void FeedCore::SetWaiting(bool is_waiting) {
  std::lock_guard lock(mutex_);
  is_waiting_ = is_waiting;
  if (is_waiting && num_untold_ != 0) {
    num_untold_ = 0;
    Wake();
  }
}

absl::Status FeedCore::TellDevice(uint32_t slot, uint64_t stream,
                                  uint64_t sequence) {
  CudaDriver* const cuda = slab_.cuda();
  if (cuda->CanWriteValues() &&
      cuda->WriteValue(stream, ring_.release_done_word(slot), sequence).ok()) {
    return absl::OkStatus();
  }
  host_releases_[slot] = {this, slot, sequence};
  const absl::Status launched =
      cuda->LaunchHostFunction(stream, &CompleteOnHost, &host_releases_[slot]);
  if (launched.ok()) return absl::OkStatus();
  return NotGivenBack(stream, launched);
}

absl::Status FeedCore::NotGivenBack(uint64_t stream,
                                    const absl::Status& error) const {
  return WithDetail(
      absl::InternalError(absl::StrCat(
          "a batch of cuda:", slab_.cuda()->ordinal(),
          " could not be given back on stream ", absl::Hex(stream), " (",
          std::string(error.message()),
          "): the CUDA context of this process has failed, or the stream was "
          "destroyed before its batch; restart this process, or keep streams "
          "longer than the batches that use them")),
      ErrorDetail::kContextFailed);
}

// Runs on a driver thread. The object stays until the word is written.
void FeedCore::CompleteOnHost(void* argument) {
  const auto* const release = static_cast<const HostRelease*>(argument);
  release->core->ring_.CompleteRelease(release->slot, release->sequence);
}

void FeedCore::Wake() {
  const uint64_t one = 1;
  // The write fails only if the eventfd's counter would overflow; the daemon is
  // awake then.
  if (write(event_.get(), &one, sizeof(one)) < 0) return;
}

void FeedCore::Unreference(int count) {
  if (count != 0 &&
      references_.fetch_sub(count, std::memory_order_acq_rel) == count) {
    Destroy();
  }
}

void FeedCore::Destroy() {
  if (slab_.cuda() == nullptr) return Delete();
  if (has_device_failed_.load(std::memory_order_acquire)) {
    // The daemon stops producing; the process's end frees the slab. The list is
    // for leak checkers.
    static std::atomic<FeedCore*> kept{nullptr};
    next_kept_ = kept.exchange(this);
    return;
  }
  FeedCloser::Add([this] { return TryDelete(); });
}

bool FeedCore::TryDelete() {
  // Each slot's word is written behind the last work that was given the slot. A
  // larger value is that of a batch that was skipped.
  for (uint32_t slot = 0; slot < layout_.num_slots(); ++slot) {
    if (ring_.release_done_word(slot)->load(std::memory_order_acquire) <
        slots_[slot].sequence) {
      return false;
    }
  }
  (void)slab_.cuda()->UnregisterHostMemory(pages_.client());
  Delete();
  return true;
}

void FeedCore::Delete() {
  slab_ = Slab();
  pages_ = RingPages();
  lease_.Detach();
  delete this;
}

DLManagedTensor* FeedCore::MakeTensor(const BatchInfo& info, uint32_t field) {
  FieldTensor* item = &tensors_[info.slot * (layout_.num_fields() + 1) + field];
  if (item->is_used.exchange(true, std::memory_order_acquire)) {
    item = new FieldTensor();
    item->is_from_heap = true;
  }
  const FieldLayout& layout = layout_.fields()[field];
  item->core = this;
  item->slot = info.slot;
  item->field = field;
  item->Set(layout, info.num_samples, FieldData(info.slot, layout), device());
  item->tensor.manager_ctx = item;
  item->tensor.deleter = &DeleteTensor;
  Hold(info.slot, field);
  return &item->tensor;
}

DLManagedTensor* FeedCore::CopyTensor(const BatchInfo& info,
                                      uint32_t field) const {
  const FieldLayout& layout = layout_.fields()[field];
  return MakeCopiedTensor(layout, info.num_samples,
                          FieldData(info.slot, layout));
}

void FeedCore::DeleteTensor(DLManagedTensor* tensor) {
  auto* const item = static_cast<FieldTensor*>(tensor->manager_ctx);
  FeedCore* const core = item->core;
  if (!core->is_this_process()) return;
  const uint32_t slot = item->slot;
  const uint32_t field = item->field;
  if (item->is_from_heap) {
    delete item;
  } else {
    item->is_used.store(false, std::memory_order_release);
  }
  core->Drop(slot, field);
}

}  // namespace datasetd::client
