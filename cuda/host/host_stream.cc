#include "cuda/host/host_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace datasetd {

namespace {

// Copied between two checkpoints.
constexpr size_t kCopyPieceBytes = size_t{1} << 20;

}  // namespace

HostStream::HostStream(HostThreadPool* pool, AugmentFunction augment,
                       std::function<void()> on_done, HostUser user)
    : Job(pool, user),
      pool_(pool),
      augment_(augment),
      on_done_(std::move(on_done)),
      progress_(std::make_shared<HostStreamProgress>(0)) {}

HostStream::~HostStream() {
  std::unique_lock lock(mutex_);
  progressed_.wait(lock,
                   [this] { return *progress_ == end_ && num_runs_ == 0; });
}

absl::Status HostStream::CopyToDevice(uint8_t* to, const uint8_t* from,
                                      size_t size_bytes) {
  return Copy(to, from, size_bytes);
}

absl::Status HostStream::CopyToHost(uint8_t* to, const uint8_t* from,
                                    size_t size_bytes) {
  return Copy(to, from, size_bytes);
}

absl::Status HostStream::Copy(uint8_t* to, const uint8_t* from,
                              size_t size_bytes) {
  if (size_bytes == 0) return absl::OkStatus();
  const Work work = {.kind = WorkKind::kCopy,
                     .copy_to = to,
                     .copy_from = from,
                     .copy_bytes = size_bytes};
  return Submit(absl::MakeConstSpan(&work, 1));
}

absl::Status HostStream::Augment(const LoadedProgram& program,
                                 absl::Span<const BatchTask> batches) {
  if (batches.empty() || batches.size() > kMaxHostBatches) {
    return absl::InvalidArgumentError(
        absl::StrCat("a launch of ", batches.size(),
                     " batches; the host runs 1 to ", kMaxHostBatches));
  }
  const AugmentProgram& host_program =
      static_cast<const HostProgram&>(program).program();
  if (host_program.num_teams > 0 && host_program.num_teams < max_runs_) {
    max_runs_ = host_program.num_teams;
    pool_->LimitRuns(this, max_runs_);
  }
  std::array<Work, kMaxHostBatches> work;
  for (size_t i = 0; i < batches.size(); ++i) {
    work[i] = {.kind = WorkKind::kAugment,
               .program = &host_program,
               .batch = batches[i]};
  }
  return Submit(absl::MakeConstSpan(work.data(), batches.size()));
}

absl::Status HostStream::Record(Event& event) {
  const Work work = {.kind = WorkKind::kRecord, .is_complete = true};
  if (absl::Status status = Submit(absl::MakeConstSpan(&work, 1));
      !status.ok()) {
    return status;
  }
  auto& host_event = static_cast<HostEvent&>(event);
  host_event.progress_ = progress_;
  host_event.sequence_ = end_;  // only the submitting thread writes it
  return absl::OkStatus();
}

absl::Status HostStream::Synchronize() {
  std::unique_lock lock(mutex_);
  progressed_.wait(lock, [this] { return *progress_ == end_; });
  if (is_cancelled_) return absl::CancelledError("the stream was cancelled");
  return absl::OkStatus();
}

void HostStream::Cancel() {
  {
    std::lock_guard lock(mutex_);
    if (is_cancelled_) return;
    is_cancelled_ = true;
  }
  pool_->Stop(this);
}

absl::Status HostStream::Submit(absl::Span<const Work> work) {
  std::lock_guard lock(mutex_);
  if (end_ - *progress_ + work.size() > kMaxPendingWork) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a stream of the host holds at most ", kMaxPendingWork,
                     " pieces of pending work; synchronize it"));
  }
  for (const Work& piece : work) At(end_++) = piece;
  Advance();
  if (num_unnotified_ > 0 && !is_notifying_) {
    ++num_runs_;
    pool_->Schedule(this, 1);
  }
  return absl::OkStatus();
}

void HostStream::Run() {
  std::unique_lock lock(mutex_);
  Notify(lock);
  if (uint64_t sequence; StartNext(&sequence)) {
    Work& work = At(sequence);
    bool is_complete = true;
    if (!is_cancelled_) {
      lock.unlock();
      is_complete = RunWork(work);
      lock.lock();
    }
    if (is_complete) {
      work.is_complete = true;
      Advance();
      Notify(lock);
    } else {
      work.is_interrupted = true;
      ++num_interrupted_;
      ++num_runs_;
      pool_->Schedule(this, 1);
    }
  }
  if (--num_runs_ == 0) progressed_.notify_all();
}

bool HostStream::RunWork(Work& work) const {
  if (work.kind == WorkKind::kAugment) {
    return augment_(*work.program, work.batch, &work.position);
  }
  for (size_t first = 0; first < work.copy_bytes; first += kCopyPieceBytes) {
    if (first > 0 && !GoesOn()) break;
    std::memcpy(work.copy_to + first, work.copy_from + first,
                std::min(kCopyPieceBytes, work.copy_bytes - first));
  }
  return true;
}

bool HostStream::StartNext(uint64_t* sequence) {
  if (num_interrupted_ > 0) {
    *sequence = *progress_;
    while (!At(*sequence).is_interrupted) ++*sequence;
    At(*sequence).is_interrupted = false;
    --num_interrupted_;
    return true;
  }
  while (next_ < runnable_ && At(next_).kind == WorkKind::kRecord) ++next_;
  if (next_ == runnable_) return false;
  *sequence = next_++;
  return true;
}

void HostStream::Advance() {
  uint64_t complete = *progress_;
  while (complete < end_ && At(complete).is_complete) {
    if (At(complete).kind == WorkKind::kRecord && on_done_) ++num_unnotified_;
    ++complete;
  }
  if (complete != *progress_) {
    progress_->store(complete);
    progressed_.notify_all();
  }
  next_ = std::max(next_, complete);
  runnable_ = std::max(runnable_, complete);

  int num_new_runs = 0;
  for (; runnable_ < end_ && complete >= barrier_; ++runnable_) {
    const WorkKind kind = At(runnable_).kind;
    if (kind == WorkKind::kRecord) continue;
    if (kind == WorkKind::kCopy) {
      if (complete != runnable_) break;
      barrier_ = runnable_ + 1;
    }
    ++num_new_runs;
  }
  num_runs_ += num_new_runs;
  pool_->Schedule(this, num_new_runs);
}

void HostStream::Notify(std::unique_lock<std::mutex>& lock) {
  if (is_notifying_) return;
  is_notifying_ = true;
  for (; num_unnotified_ > 0; --num_unnotified_) {
    lock.unlock();
    on_done_();
    lock.lock();
  }
  is_notifying_ = false;
}

}  // namespace datasetd
