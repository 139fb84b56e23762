// Lets threads that need a dataset's memory cancel a copy of it in progress,
// instead of waiting for its turn on the device. Thread-safe; at most one
// copying thread.

#ifndef DATASETD_SERVER_CACHE_COPY_GATE_H_
#define DATASETD_SERVER_CACHE_COPY_GATE_H_

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "cuda/backend/backend.h"

namespace datasetd {

class CopyGate {
 public:
  // Marks a copy in progress on `stream`. Blocks while another thread waits for
  // a copy to end. REQUIRES: the dataset is released before the Pass ends.
  class Pass {
   public:
    Pass(CopyGate* gate, Stream* stream) : gate_(gate) {
      const auto is_open = [gate]() ABSL_SHARED_LOCKS_REQUIRED(gate->mutex_) {
        return gate->num_waiting_ == 0;
      };
      MutexLock lock(&gate->mutex_, Condition(&is_open));
      gate->stream_ = stream;
    }
    ~Pass() {
      MutexLock lock(&gate_->mutex_);
      gate_->stream_ = nullptr;
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    CopyGate* const gate_;
  };

  // Cancels the stream of the current copy, and blocks until the copy has
  // ended.
  void Interrupt() {
    MutexLock lock(&mutex_);
    if (stream_ == nullptr) return;
    stream_->Cancel();
    ++num_waiting_;
    const auto has_ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stream_ == nullptr;
    };
    mutex_.Await(Condition(&has_ended));
    --num_waiting_;
  }

 private:
  Mutex mutex_;
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: no copy
  int num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_COPY_GATE_H_
