// One batch, in the slot of shared memory that the daemon filled.
//
// The memory is writable and shared only with the daemon, which does not touch
// it until the slot is released: after the Batch and every tensor made from it
// are destroyed and the batch's streams have completed. A Batch may outlive its
// Feed and its Client.
//
// Thread-compatible; may be destroyed on any thread. A moved-from Batch holds
// nothing.

#ifndef DATASETD_CLIENT_FEED_BATCH_H_
#define DATASETD_CLIENT_FEED_BATCH_H_

#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "client/feed/feed_core.h"

namespace datasetd::client {

// A field of a batch. Points into the batch and the feed's layout.
struct FieldView {
  const char* name = nullptr;
  Dtype dtype = Dtype::kUint8;
  void* data = nullptr;  // an address on device()
  int num_dimensions = 0;
  // The first extent is num_samples; with FeedOptions.group_order the first two
  // are the groups and their samples. An image is [N, C, H, W] in either
  // layout; the layout shows in the strides, which are in elements.
  std::array<int64_t, kMaxDimensions> shape = {};
  std::array<int64_t, kMaxDimensions> strides = {};
};

class Batch {
 public:
  Batch() = default;
  // Takes over the hold obtained from FeedCore::Next.
  Batch(FeedCore* core, const BatchInfo& info) : core_(core), info_(info) {}
  Batch(Batch&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), info_(other.info_) {}
  Batch& operator=(Batch&& other) noexcept {
    Batch taken(std::move(other));
    std::swap(core_, taken.core_);
    std::swap(info_, taken.info_);
    return *this;
  }
  ~Batch() { Release(); }

  // Drops the batch's hold on the slot. The Batch becomes empty.
  void Release() {
    if (FeedCore* const core = std::exchange(core_, nullptr)) {
      core->Drop(info_.slot, core->batch_holder());
    }
  }

  uint64_t epoch() const { return info_.epoch; }
  // Index within the epoch.
  uint64_t index() const { return info_.batch; }
  uint32_t num_samples() const { return info_.num_samples; }
  // Number of rows at the end that repeat samples, so that all ranks get
  // equally many.
  uint32_t num_padding() const { return info_.num_padding; }

  // All methods below REQUIRE that is_held().
  bool is_held() const { return core_ != nullptr; }
  const BatchInfo& info() const { return info_; }
  FeedCore* core() const { return core_; }
  int num_fields() const { return core_->layout().num_fields(); }
  DLDevice device() const { return core_->device(); }

  // REQUIRES: 0 <= index < num_fields().
  FieldView field(int index) const;
  // Sample indices, int64 [num_samples]. With a mixture the dataset's number is
  // in the upper 32 bits.
  FieldView indices() const { return field(num_fields()); }

  // Returns a tensor that holds the slot until the caller calls its deleter,
  // once. `index` num_fields() means the indices. The first tensor of a field
  // needs no allocation.
  DLManagedTensor* ToDlpack(int index) const {
    return core_->MakeTensor(info_, static_cast<uint32_t>(index));
  }

  // Copies `size_bytes` of this batch's memory, from the device if need be, and
  // blocks until done. For inspecting samples, not for training.
  absl::Status CopyToHost(void* to, const void* from, size_t size_bytes) const {
    return core_->CopyToHost(to, from, size_bytes);
  }

  // Makes the release wait for the work enqueued on `stream` before it. The
  // stream may be of another GPU that reads the batch; 0 and 1
  // (CU_STREAM_LEGACY) are the default stream of the batch's GPU. REQUIRES: it
  // is not destroyed before the release, which ends the feed. No effect without
  // CUDA.
  //   INVALID_ARGUMENT    the stream is CU_STREAM_PER_THREAD
  //   RESOURCE_EXHAUSTED  beyond kMaxStreamsPerBatch
  absl::Status RecordStream(uint64_t stream) {
    return core_->RecordStream(info_.slot, stream);
  }

 private:
  FeedCore* core_ = nullptr;
  BatchInfo info_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_BATCH_H_
