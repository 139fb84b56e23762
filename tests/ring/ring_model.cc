#include "tests/ring/ring_model.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace datasetd::testing {

using ring::FeedState;
using ring::SeekRequest;
using ring::SlotDescriptor;

RingModel::RingModel(const RingModelOptions& options)
    : options_(options),
      daemon_ring_(&daemon_page_, &client_page_, options.num_slots),
      client_ring_(&daemon_page_, &client_page_, options.num_slots) {
  producer_.next_sequence = 1;
  client_.next_sequence = 1;

  Explorer* const explorer = Explorer::Current();
  NameWords();
  explorer->AddPlain(daemon_page_.slots,
                     options.num_slots * sizeof(SlotDescriptor));
  explorer->AddPlain(truth_, sizeof(truth_));
  explorer->AddPlain(&producer_, sizeof(producer_));
  explorer->AddPlain(&client_, sizeof(client_));
  AddQueue(device_queue_);
  AddQueue(gpu_queue_);
  AddQueue(releaser_queue_);

  explorer->Spawn("client", ThreadKind::kForeground, [this] { Consume(); });
  explorer->Spawn("producer", ThreadKind::kBackground, [this] { Produce(); });
  explorer->Spawn("device", ThreadKind::kBackground, [this] { RunDevice(); });
  if (options.has_gpu) {
    explorer->Spawn("gpu", ThreadKind::kBackground, [this] {
      for (;;) {
        Explorer::Current()->Checkpoint(gpu_queue_.num_taken);
        CompleteByCpu(gpu_queue_.Take());
      }
    });
  }
  if (options.has_releaser) {
    explorer->Spawn("releaser", ThreadKind::kBackground, [this] {
      for (;;) {
        Explorer::Current()->Checkpoint(releaser_queue_.num_taken);
        Release(releaser_queue_.Take());
      }
    });
  }
  if (options.may_close) {
    explorer->Spawn("closer", ThreadKind::kForeground, [this] {
      close_asked_.store(1);
      event_.Write();
    });
  }
}

template <typename T>
void RingModel::AddQueue(const Queue<T>& queue) {
  Explorer* const explorer = Explorer::Current();
  explorer->AddPlain(&queue.num_taken, sizeof(queue.num_taken));
  explorer->AddPlain(queue.entries, sizeof(queue.entries));
}

void RingModel::NameWords() {
  daemon_page_.wake.SetName("wake");
  daemon_page_.state.SetName("state");
  daemon_page_.idle.SetName("idle");
  client_page_.waiting.SetName("waiting");
  client_page_.seek_generation.SetName("seek_generation");
  client_page_.seek_epoch.SetName("seek_epoch");
  client_page_.seek_batch.SetName("seek_batch");
  client_page_.seek_begun.SetName("seek_begun");
  close_asked_.SetName("close_asked");
  device_queue_.num_put.SetName("device_queue");
  gpu_queue_.num_put.SetName("gpu_queue");
  releaser_queue_.num_put.SetName("releaser_queue");
  for (uint32_t i = 0; i < options_.num_slots; ++i) {
    daemon_page_.published[i].SetName(absl::StrCat("published", i));
    client_page_.release_requested[i].SetName(absl::StrCat("requested", i));
    client_page_.release_done[i].SetName(absl::StrCat("done", i));
    work_status_[i].SetName(absl::StrCat("work_status", i));
  }
}

void RingModel::CheckEnd() {
  Check(client_.num_used == options_.num_batches || client_.is_closed != 0,
        "the client gave up");
  Check(client_.is_closed == 0 || options_.may_close || options_.may_fail,
        "the feed closed by itself");
}

SeekRequest RingModel::SeekOf(uint64_t generation) {
  return {generation, 10 * generation, generation % kBatchesPerEpoch};
}

void RingModel::Advance(Position* position) {
  if (++position->batch < kBatchesPerEpoch) return;
  position->batch = 0;
  ++position->epoch;
}

void RingModel::Produce() {
  for (;;) {
    Explorer::Current()->Checkpoint(
        Explorer::HashOf(&producer_, sizeof(producer_)));
    if (options_.may_close && close_asked_.load() != 0) break;
    const bool is_busy = Scan();
    if (producer_.has_failed != 0) break;
    if (is_busy || MustPoll()) continue;
    if (Has(Mutation::kIdleAfterRescan)) {
      if (Scan() || MustPoll()) continue;
      daemon_ring_.SetIdle(true);
      event_.Wait();
    } else {
      daemon_ring_.SetIdle(true);
      const bool may_sleep =
          Has(Mutation::kNoRescan) ||
          (!(options_.may_close && close_asked_.load() != 0) && !Scan() &&
           !MustPoll());
      if (may_sleep) event_.Wait();
    }
    daemon_ring_.SetIdle(false);
    if (producer_.has_failed != 0) break;
  }
  Close();
}

void RingModel::Close() {
  if (Has(Mutation::kCloseBeforeState)) {
    daemon_page_.wake.fetch_add(1);
    ModelFutexWakeAll(daemon_page_.wake);
    daemon_page_.state.store(static_cast<uint32_t>(FeedState::kClosed));
    return;
  }
  daemon_ring_.Close();
  if (Has(Mutation::kCloseWithoutWake)) return;
  ModelFutexWakeAll(*daemon_ring_.wake_word());
}

std::optional<SeekRequest> RingModel::ReadSeek() {
  if (Has(Mutation::kIgnoresSeek)) return std::nullopt;
  if (!Has(Mutation::kTornSeekRead)) return daemon_ring_.ReadSeek();
  const uint64_t generation = client_page_.seek_generation.load();
  if (generation == producer_.generation) return std::nullopt;
  const uint64_t epoch = client_page_.seek_epoch.load();
  const uint64_t batch = client_page_.seek_batch.load();
  if (client_page_.seek_generation.load() != generation) return std::nullopt;
  return SeekRequest{generation, epoch, batch};
}

bool RingModel::Scan() {
  bool is_busy = false;
  if (options_.num_seeks > 0) {
    if (const std::optional<SeekRequest> seek = ReadSeek()) {
      const SeekRequest expected = SeekOf(seek->generation);
      Check(seek->epoch == expected.epoch && seek->batch == expected.batch,
            "torn seek");
      producer_.generation = seek->generation;
      producer_.position = {seek->epoch, seek->batch};
      is_busy = true;
    }
  }
  is_busy |= ScanReleases();
  is_busy |= StartWork();
  is_busy |= PublishCompleted();
  return is_busy;
}

bool RingModel::ScanReleases() {
  bool is_busy = false;
  producer_.is_release_pending = 0;
  for (uint32_t slot = 0; slot < options_.num_slots; ++slot) {
    if (producer_.state[slot] != SlotState::kPublished) continue;
    const uint64_t sequence = producer_.sequence[slot];
    const uint64_t done = daemon_ring_.ReleaseDone(slot);
    bool is_free = done == sequence;
    if (Has(Mutation::kFreesOnAnyDone)) is_free = done != 0;
    if (!is_free && daemon_ring_.IsReleaseRequested(slot, sequence)) {
      if (Has(Mutation::kFreesOnRequest)) {
        is_free = true;
      } else {
        producer_.is_release_pending = 1;
      }
    }
    if (!is_free) continue;
    producer_.state[slot] = SlotState::kFree;
    producer_.sequence[slot] = 0;
    is_busy = true;
  }
  return is_busy;
}

bool RingModel::IsGathering() const {
  if (!options_.gathers) return false;
  uint32_t num_free = 0;
  for (uint32_t slot = 0; slot < options_.num_slots; ++slot) {
    if (producer_.state[slot] == SlotState::kFree) ++num_free;
  }
  return num_free < options_.num_slots &&
         (num_free == 0 || Has(Mutation::kIgnoresWaiting) ||
          !daemon_ring_.IsClientWaiting());
}

bool RingModel::StartWork() {
  if (IsGathering()) return false;
  bool is_busy = false;
  for (uint32_t slot = 0; slot < options_.num_slots; ++slot) {
    if (producer_.state[slot] != SlotState::kFree) continue;
    if (producer_.generation == 0 &&
        producer_.next_sequence + producer_.num_working >
            options_.num_before_seek) {
      continue;
    }
    Check(truth_[slot].user == User::kNobody,
          "a slot is filled while somebody may use it");
    producer_.state[slot] = SlotState::kWorking;
    Work& work = producer_.working[producer_.num_working++];
    work = {slot, 0, producer_.generation, producer_.position};
    if (Has(Mutation::kSequenceAtStart)) {
      work.sequence = producer_.next_sequence++;
    }
    Advance(&producer_.position);
    truth_[slot].user = User::kDevice;
    work_status_[slot].Poke(kRunning);
    device_queue_.Put(work);
    is_busy = true;
  }
  return is_busy;
}

bool RingModel::PublishCompleted() {
  bool is_busy = false;
  while (producer_.num_working > 0) {
    const uint64_t index =
        Has(Mutation::kPublishesOutOfOrder) ? producer_.num_working - 1 : 0;
    Work work = producer_.working[index];
    if (!Has(Mutation::kPublishesAtStart)) {
      const uint32_t status = work_status_[work.slot].load();
      if (status == kFailed && !Has(Mutation::kPublishesFailed)) {
        producer_.has_failed = 1;
        return true;
      }
      if (status == kRunning) break;
    }
    --producer_.num_working;
    for (uint64_t i = index; i < producer_.num_working; ++i) {
      producer_.working[i] = producer_.working[i + 1];
    }
    producer_.working[producer_.num_working] = {};
    work_status_[work.slot].Poke(0);
    is_busy = true;
    if (options_.drops_stale_work && work.generation != producer_.generation) {
      producer_.state[work.slot] = SlotState::kFree;
      truth_[work.slot] = {};
      continue;
    }
    if (Has(Mutation::kNewGenerationForOldWork)) {
      work.generation = producer_.generation;
    }
    if (!Has(Mutation::kSequenceAtStart)) {
      work.sequence = producer_.next_sequence++;
    }
    producer_.state[work.slot] = SlotState::kPublished;
    producer_.sequence[work.slot] = work.sequence;
    PublishWork(work);
  }
  return is_busy;
}

void RingModel::PublishWork(const Work& work) {
  Explorer::Current()->Observe(Explorer::HashOf(&work, sizeof(work)));
  SlotDescriptor descriptor = {};
  descriptor.sequence = work.sequence;
  descriptor.generation = work.generation;
  descriptor.epoch = work.position.epoch;
  descriptor.batch = work.position.batch;
  const auto slot = static_cast<uint32_t>(work.slot);
  ModelAtomic<uint64_t>& published =
      daemon_page_.published[work.sequence % options_.num_slots];
  bool must_wake = false;
  switch (options_.mutation) {
    case Mutation::kDescriptorAfterPublish:
      published.store(ring::PackPublished(work.sequence, slot));
      daemon_page_.wake.fetch_add(1);
      daemon_page_.slots[slot] = descriptor;
      must_wake = client_page_.waiting.load() != 0;
      break;
    case Mutation::kWaitingReadFirst:
      must_wake = client_page_.waiting.load() != 0;
      (void)daemon_ring_.Publish(slot, descriptor);
      break;
    case Mutation::kNoWakeIncrement:
      daemon_page_.slots[slot] = descriptor;
      published.store(ring::PackPublished(work.sequence, slot));
      must_wake = client_page_.waiting.load() != 0;
      break;
    default:
      must_wake = daemon_ring_.Publish(slot, descriptor);
  }
  if (must_wake) ModelFutexWakeAll(*daemon_ring_.wake_word());
}

bool RingModel::MustPoll() const {
  if (producer_.is_release_pending != 0 &&
      !Has(Mutation::kSleepsWhileRequested)) {
    return true;
  }
  return producer_.num_working > 0 && !Has(Mutation::kSleepsWhileWorking);
}

void RingModel::RunDevice() {
  for (;;) {
    Explorer::Current()->Checkpoint(device_queue_.num_taken);
    const Work work = device_queue_.Take();
    const bool fails =
        options_.may_fail && Explorer::Current()->Choose(2, "fail") == 1;
    work_status_[work.slot].store(fails ? kFailed : kCompleted);
    Check(truth_[work.slot].user == User::kDevice,
          "the device writes what somebody else uses");
    truth_[work.slot].content = work.position;
    truth_[work.slot].user = fails ? User::kFailed : User::kProducer;
    if (fails) return;  // as after a CUDA error: nothing completes any more
  }
}

void RingModel::Consume() {
  while (client_.num_used < options_.num_batches) {
    Explorer::Current()->Checkpoint(
        Explorer::HashOf(&client_, sizeof(client_)));
    while (
        client_.generation < options_.num_seeks &&
        (options_.seeks_first || Explorer::Current()->Choose(2, "seek") == 1)) {
      Seek();
    }
    Held batch;
    if (!Next(&batch)) {
      client_.is_closed = 1;
      return;
    }
    ++client_.num_used;
    client_.held[client_.num_held++] = batch;
    if (client_.num_held <= options_.num_held) continue;
    const uint64_t index =
        options_.releases_youngest ? client_.num_held - 1 : 0;
    batch = client_.held[index];
    --client_.num_held;
    for (uint64_t i = index; i < client_.num_held; ++i) {
      client_.held[i] = client_.held[i + 1];
    }
    client_.held[client_.num_held] = {};
    CheckHeld(batch);
    if (options_.has_releaser && batch.sequence % 2 == 0) {
      releaser_queue_.Put(batch);
    } else {
      Release(batch);
    }
  }
  // The batches that are still held were never touched.
  for (uint64_t i = 0; i < client_.num_held; ++i) CheckHeld(client_.held[i]);
}

void RingModel::Seek() {
  ++client_.generation;
  const SeekRequest request = SeekOf(client_.generation);
  client_.position = {request.epoch, request.batch};
  const bool must_write = client_ring_.Seek(request);
  if (must_write && !Has(Mutation::kNoEventOnSeek)) event_.Write();
}

bool RingModel::Next(Held* batch) {
  for (;;) {
    Explorer::Current()->Checkpoint(
        ~Explorer::HashOf(&client_, sizeof(client_)));
    std::optional<uint32_t> slot = client_ring_.Poll(client_.next_sequence);
    if (!slot.has_value()) {
      if (IsClosed()) return false;
      slot = Wait();
      if (!slot.has_value()) continue;
    }
    *batch = {*slot, client_.next_sequence};
    if (Accept(*slot)) return true;
    // On no stream: the CPU says that it is done.
    CompleteByCpu(*batch);
    RequestRelease(*batch);
  }
}

bool RingModel::IsClosed() const {
  // Where nothing closes the feed, the word is constant: no need to explore.
  if (!options_.may_close && !options_.may_fail) return false;
  return !Has(Mutation::kNoClosedCheck) && client_ring_.IsClosed();
}

std::optional<uint32_t> RingModel::Wait() {
  uint32_t word = 0;
  bool must_write = false;
  if (Has(Mutation::kNoWaitingFlag)) {
    word = daemon_page_.wake.load();
  } else {
    const bool was_idle =
        Has(Mutation::kIdleReadBeforeWaiting) && daemon_page_.idle.load() != 0;
    must_write = client_ring_.BeginWait(&word);
    if (Has(Mutation::kIdleReadBeforeWaiting)) must_write = was_idle;
  }
  const std::optional<uint32_t> slot = client_ring_.Poll(client_.next_sequence);
  const bool is_closed = IsClosed();
  if (Has(Mutation::kWordAfterPoll)) word = daemon_page_.wake.load();
  if (!slot.has_value() && !is_closed) {
    // Only where it is needed: it would make good for other lost wake-ups.
    if (must_write && options_.gathers && !Has(Mutation::kNoEventOnWait)) {
      event_.Write();
    }
    ModelFutexWait(*client_ring_.wake_word(), word);
  }
  client_ring_.EndWait();
  return slot;
}

bool RingModel::Accept(uint32_t slot) {
  SlotTruth& truth = truth_[slot];
  Check(truth.user == User::kProducer, truth.user == User::kFailed
                                           ? "failed work was published"
                                           : "published too early");
  truth.user = User::kClient;
  const SlotDescriptor& descriptor = client_ring_.descriptor(slot);
  Check(descriptor.sequence == client_.next_sequence,
        "the descriptor is of another sequence");
  Check((Position{descriptor.epoch, descriptor.batch}) == truth.content,
        "the descriptor does not match the content");
  ++client_.next_sequence;
  Explorer::Current()->Observe(descriptor.generation);
  Check(descriptor.generation <= client_.generation, "unknown generation");
  if (descriptor.generation != client_.generation &&
      !Has(Mutation::kUsesStale)) {
    return false;
  }
  Check(truth.content == client_.position, "wrong position");
  Advance(&client_.position);
  return true;
}

void RingModel::CheckHeld(const Held& batch) const {
  const SlotTruth& truth = truth_[batch.slot];
  const SlotDescriptor& descriptor =
      client_ring_.descriptor(static_cast<uint32_t>(batch.slot));
  Check(truth.user == User::kClient && descriptor.sequence == batch.sequence &&
            (Position{descriptor.epoch, descriptor.batch}) == truth.content,
        "a held batch was changed");
}

void RingModel::CompleteByCpu(const Held& batch) {
  client_ring_.CompleteRelease(static_cast<uint32_t>(batch.slot),
                               batch.sequence);
  truth_[batch.slot] = {};
}

void RingModel::RequestRelease(const Held& batch) {
  const auto slot = static_cast<uint32_t>(batch.slot);
  bool must_write = false;
  switch (options_.mutation) {
    case Mutation::kIdleReadFirst:
      must_write = daemon_page_.idle.load() != 0;
      (void)client_ring_.RequestRelease(slot, batch.sequence);
      break;
    case Mutation::kPlainRequest:
      client_page_.release_requested[slot].store(batch.sequence);
      must_write = daemon_page_.idle.load() != 0;
      break;
    default:
      must_write = client_ring_.RequestRelease(slot, batch.sequence);
  }
  if (must_write && !Has(Mutation::kNoEventOnRelease)) event_.Write();
}

void RingModel::Release(const Held& batch) {
  if (Has(Mutation::kReleasesInUse)) {
    // The word says done, the GPU has not done it.
    client_ring_.CompleteRelease(static_cast<uint32_t>(batch.slot),
                                 batch.sequence);
    gpu_queue_.Put(batch);
  } else if (options_.has_gpu) {
    gpu_queue_.Put(batch);
  } else {
    CompleteByCpu(batch);
  }
  RequestRelease(batch);
}

}  // namespace datasetd::testing
