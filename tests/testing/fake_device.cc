#include "tests/testing/fake_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/backend/device_failure.h"
#include "cuda/kernels/program/augment.h"

namespace datasetd {
namespace {

[[noreturn]] void Breach(const char* what) {
  std::fprintf(stderr, "FakeBackend: breach of cuda/backend/backend.h: %s\n",
               what);
  std::abort();
}

bool Contains(const uint8_t* begin, size_t size_bytes, const void* pointer) {
  const std::less_equal<const void*> at_most;
  return pointer != nullptr && at_most(begin, pointer) &&
         !at_most(begin + size_bytes, pointer);
}

bool Uses(const FakeWork& work, const uint8_t* begin, size_t size_bytes) {
  const auto contains = [&](const void* pointer) {
    return Contains(begin, size_bytes, pointer);
  };
  if (contains(work.copy_to) || contains(work.copy_from)) return true;
  for (const BatchTask& batch : work.batches) {
    if (contains(batch.slot) || contains(batch.indices)) return true;
  }
  if (work.program == nullptr) return false;
  for (int i = 0; i < work.program->num_fields; ++i) {
    if (contains(work.program->fields[i].source)) return true;
  }
  return false;
}

// True on the k-th call of the counted down.
bool CountDown(int* calls) { return *calls > 0 && --*calls == 0; }

}  // namespace

bool FakeDevice::CompleteNext() {
  {
    std::lock_guard lock(mutex_);
    FakeStreamState* stream = OldestStream();
    if (stream == nullptr) return false;
    RunFirst(stream);
  }
  // Not under the lock: on_done may wait for a thread that wants it.
  notifier_.Drain();
  return true;
}

bool FakeDevice::FailNext(const absl::Status& error) {
  if (error.ok()) Breach("FailNext needs an error");
  {
    std::lock_guard lock(mutex_);
    if (OldestStream() == nullptr) return false;
    failure_ = DeviceFailure(error);  // of all that follows, as in CUDA
    for (FakeStreamState* stream : streams_) {
      for (const FakeWork& work : stream->pending) {
        if (work.event != nullptr) EndRecord(stream, work.event.get());
      }
      stream->pending.clear();
    }
  }
  notifier_.Drain();
  return true;
}

void FakeDevice::FailAllocation(int k) {
  std::lock_guard lock(mutex_);
  allocations_until_failure_ = k;
}

void FakeDevice::FailLaunch(int k) {
  std::lock_guard lock(mutex_);
  launches_until_failure_ = k;
}

int FakeDevice::num_pending_launches() const {
  std::lock_guard lock(mutex_);
  int count = 0;
  for (const FakeStreamState* stream : streams_) {
    for (const FakeWork& work : stream->pending) {
      if (work.program != nullptr) ++count;
    }
  }
  return count;
}

int FakeDevice::num_launches() const {
  std::lock_guard lock(mutex_);
  return num_launches_;
}

int FakeDevice::num_copies() const {
  std::lock_guard lock(mutex_);
  return num_copies_;
}

int FakeDevice::num_waits() const {
  std::lock_guard lock(mutex_);
  return num_waits_;
}

int FakeDevice::num_live_objects() const {
  std::lock_guard lock(mutex_);
  return num_live_objects_;
}

size_t FakeDevice::live_bytes() const {
  std::lock_guard lock(mutex_);
  return live_bytes_;
}

absl::Status FakeDevice::StartObject(const std::string& what,
                                     size_t size_bytes) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (CountDown(&allocations_until_failure_)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for ", what, " of ", size_bytes, " bytes, on command"));
  }
  ++num_live_objects_;
  return absl::OkStatus();
}

void FakeDevice::AddBytes(size_t size_bytes) {
  std::lock_guard lock(mutex_);
  live_bytes_ += size_bytes;
}

void FakeDevice::EndMemory(const uint8_t* data, size_t size_bytes) {
  {
    std::lock_guard lock(mutex_);
    for (const FakeStreamState* stream : streams_) {
      for (const FakeWork& work : stream->pending) {
        if (Uses(work, data, size_bytes)) {
          Breach("memory destroyed while pending work uses it");
        }
      }
    }
  }
  CountOut(size_bytes);
}

void FakeDevice::EndProgram(const AugmentProgram* program) {
  {
    std::lock_guard lock(mutex_);
    for (const FakeStreamState* stream : streams_) {
      for (const FakeWork& work : stream->pending) {
        if (work.program == program) {
          Breach("program destroyed while a launch of it is pending");
        }
      }
    }
  }
  CountOut(0);
}

void FakeDevice::AddStream(FakeStreamState* stream) {
  std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

void FakeDevice::EndStream(FakeStreamState* stream) {
  {
    std::lock_guard lock(mutex_);
    RunPending(stream);
    std::erase(streams_, stream);
  }
  notifier_.Drain();
  CountOut(0);
}

absl::Status FakeDevice::Submit(FakeStreamState* stream, FakeWork work) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (work.program != nullptr) {
    if (CountDown(&launches_until_failure_)) {
      return absl::InternalError("launch failed, on command");
    }
    CheckNewLaunch(stream, work);
    ++num_launches_;
  }
  if (work.copy_bytes > 0) ++num_copies_;
  if (work.event != nullptr) {
    if (work.event->is_pending) Breach("event recorded again while pending");
    work.event->is_pending = true;
  }
  work.sequence = next_sequence_++;
  if (work.program == nullptr && stream->pending.empty()) {
    Run(stream, work);
  } else {
    stream->pending.push_back(std::move(work));
  }
  return absl::OkStatus();
}

absl::Status FakeDevice::Synchronize(FakeStreamState* stream) {
  std::lock_guard lock(mutex_);
  RunPending(stream);
  return failure_;
}

absl::StatusOr<bool> FakeDevice::IsDone(const FakeEventState& event) const {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return failure_;
  return !event.is_pending;
}

void FakeDevice::CountOut(size_t size_bytes) {
  std::lock_guard lock(mutex_);
  --num_live_objects_;
  live_bytes_ -= size_bytes;
}

FakeStreamState* FakeDevice::OldestStream() {
  FakeStreamState* oldest = nullptr;
  for (FakeStreamState* stream : streams_) {
    if (!stream->pending.empty() &&
        (oldest == nullptr ||
         stream->pending.front().sequence < oldest->pending.front().sequence)) {
      oldest = stream;
    }
  }
  return oldest;
}

void FakeDevice::CheckNewLaunch(const FakeStreamState* stream,
                                const FakeWork& work) const {
  std::vector<const uint8_t*> slots;
  for (const FakeStreamState* other : streams_) {
    const size_t num_before = slots.size();
    for (const FakeWork& pending : other->pending) {
      // A copy keeps launches of its stream apart.
      if (other == stream && pending.copy_bytes > 0) slots.resize(num_before);
      for (const BatchTask& batch : pending.batches) {
        slots.push_back(batch.slot);
      }
    }
  }
  for (const BatchTask& batch : work.batches) {
    if (std::find(slots.begin(), slots.end(), batch.slot) != slots.end()) {
      Breach("a slot is written by two pending launches");
    }
    slots.push_back(batch.slot);
  }
}

void FakeDevice::RunPending(FakeStreamState* stream) {
  if (!stream->pending.empty()) ++num_waits_;
  while (!stream->pending.empty()) RunFirst(stream);
}

void FakeDevice::RunFirst(FakeStreamState* stream) {
  do {
    const FakeWork work = std::move(stream->pending.front());
    stream->pending.pop_front();
    Run(stream, work);
  } while (!stream->pending.empty() &&
           stream->pending.front().program == nullptr);
}

void FakeDevice::Run(FakeStreamState* stream, const FakeWork& work) {
  for (const BatchTask& batch : work.batches) AugmentHost(*work.program, batch);
  if (work.copy_bytes > 0) {
    std::memcpy(work.copy_to, work.copy_from, work.copy_bytes);
  }
  if (work.event != nullptr) EndRecord(stream, work.event.get());
}

void FakeDevice::EndRecord(FakeStreamState* stream, FakeEventState* event) {
  event->is_pending = false;
  if (stream->on_done) notifier_.Post(stream->on_done);
}

}  // namespace datasetd
