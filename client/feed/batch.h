// One batch, in the slot that the daemon filled.
//
// The memory is shared with nobody but the daemon, and the daemon does not
// touch it until the slot is released: when the Batch and every tensor made of
// it are gone, and the batch's streams are done. It may be written to. A Batch
// outlives its Feed's Close and its Client.
//
// Thread-compatible; may be destroyed on any thread. Moved-from holds nothing.

#ifndef DATASETD_CLIENT_FEED_BATCH_H_
#define DATASETD_CLIENT_FEED_BATCH_H_

#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "client/feed/feed_core.h"

namespace datasetd::client {

// A field of a batch. Points into the batch and its feed's layout.
struct FieldView {
  const char* name = nullptr;
  Dtype dtype = Dtype::kUint8;
  void* data = nullptr;  // an address of device()
  int num_dimensions = 0;
  // The first extent is num_samples. An image is [N, C, H, W], whatever its
  // layout: that shows in the strides, which are in elements.
  std::array<int64_t, kMaxDimensions> shape = {};
  std::array<int64_t, kMaxDimensions> strides = {};
};

class Batch {
 public:
  Batch() = default;
  // Takes over the hold that FeedCore::Next gave.
  Batch(FeedCore* core, const BatchInfo& info) : core_(core), info_(info) {}
  Batch(Batch&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), info_(other.info_) {}
  Batch& operator=(Batch&& other) noexcept {
    std::swap(core_, other.core_);
    std::swap(info_, other.info_);
    return *this;
  }
  ~Batch() { Release(); }

  // Gives up the hold now.
  void Release() {
    if (FeedCore* const core = std::exchange(core_, nullptr)) {
      core->Drop(info_.slot, core->batch_holder());
    }
  }

  uint64_t epoch() const { return info_.epoch; }
  // Within the epoch.
  uint64_t index() const { return info_.batch; }
  uint32_t num_samples() const { return info_.num_samples; }
  // The last rows of the batch repeat samples, so that all ranks get equally
  // many.
  uint32_t num_padding() const { return info_.num_padding; }

  // REQUIRES of all below: the batch was not released or moved from.
  bool is_held() const { return core_ != nullptr; }
  const BatchInfo& info() const { return info_; }
  FeedCore* core() const { return core_; }
  int num_fields() const { return core_->layout().num_fields(); }
  DLDevice device() const { return core_->device(); }

  // REQUIRES: 0 <= index < num_fields().
  FieldView field(int index) const;
  // int64 [num_samples]: which samples these are.
  FieldView indices() const { return field(num_fields()); }

  // The caller owns it and calls its deleter once; it holds the slot until
  // then. `index` may be num_fields() for the indices. Allocates nothing for
  // the first tensor of a field.
  DLManagedTensor* ToDlpack(int index) const {
    return core_->MakeTensor(info_, static_cast<uint32_t>(index));
  }

  // Copies `size_bytes` of this batch's memory, from the device where it lies
  // there, and waits: for looking at samples, not for training.
  absl::Status CopyToHost(void* to, const void* from, size_t size_bytes) const {
    return core_->CopyToHost(to, from, size_bytes);
  }

  // Releasing waits for what `stream` was given up to the release. CUDA only;
  // elsewhere without effect.
  absl::Status RecordStream(uint64_t stream) {
    return core_->RecordStream(info_.slot, stream);
  }

 private:
  FeedCore* core_ = nullptr;
  BatchInfo info_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_BATCH_H_
