// A feed channel in memory: the test is the client.
//
// Thread-safe, so that a producer's thread may use one end.

#ifndef DATASETD_TESTS_TESTING_MEMORY_CHANNEL_H_
#define DATASETD_TESTS_TESTING_MEMORY_CHANNEL_H_

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "proto/feed_ring.h"
#include "proto/ring_protocol.h"
#include "server/feed/feed_channel.h"

namespace datasetd::testing {

class MemoryChannel : public FeedChannel {
 public:
  explicit MemoryChannel(uint32_t num_slots)
      : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        requested_(num_slots),
        done_(num_slots) {}
  ~MemoryChannel() override { close(wake_); }

  struct Published {
    uint32_t slot;
    ring::SlotDescriptor batch;
  };

  // The client's side.

  std::vector<Published> published() const {
    std::lock_guard lock(mutex_);
    return published_;
  }
  size_t num_published() const {
    std::lock_guard lock(mutex_);
    return published_.size();
  }
  // Waits until `count` batches have been published; false after 30 s.
  bool AwaitPublished(size_t count) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return published_.size() >= count; });
  }
  // Waits until `count` batches have been published or the feed is closed, and
  // returns how many have been.
  size_t AwaitPublishedOrClosed(size_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(30),
                      [&] { return published_.size() >= count || is_closed_; });
    return published_.size();
  }
  bool AwaitClosed() const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return is_closed_; });
  }
  bool is_closed() const {
    std::lock_guard lock(mutex_);
    return is_closed_;
  }
  void Release(const Published& published) {
    WriteDone(published.slot, published.batch.sequence);
  }
  void Request(const Published& published) {
    {
      std::lock_guard lock(mutex_);
      requested_[published.slot] = published.batch.sequence;
    }
    Wake();
  }
  // Any value, as a hostile client may.
  void WriteDone(uint32_t slot, uint64_t sequence) {
    {
      std::lock_guard lock(mutex_);
      done_[slot] = sequence;
    }
    Wake();
  }
  void Seek(const ring::SeekRequest& seek) {
    {
      std::lock_guard lock(mutex_);
      seek_ = seek;
    }
    Wake();
  }
  void SetWaiting(bool is_waiting) {
    {
      std::lock_guard lock(mutex_);
      is_waiting_ = is_waiting;
    }
    if (is_waiting) Wake();
  }
  void WakeForNothing() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wake_, &one, sizeof(one));
  }

  // The daemon's side.

  void Publish(uint32_t slot, const ring::SlotDescriptor& batch) override {
    std::lock_guard lock(mutex_);
    published_.push_back({slot, batch});
    changed_.notify_all();
  }
  bool IsReleaseRequested(uint32_t slot, uint64_t sequence) const override {
    std::lock_guard lock(mutex_);
    return requested_[slot] == sequence;
  }
  uint64_t ReleaseDone(uint32_t slot) const override {
    std::lock_guard lock(mutex_);
    return done_[slot];
  }
  bool IsClientWaiting() const override {
    std::lock_guard lock(mutex_);
    return is_waiting_;
  }
  std::optional<ring::SeekRequest> ReadSeek() override {
    std::lock_guard lock(mutex_);
    return std::exchange(seek_, std::nullopt);
  }
  void SetIdle(bool idle) override {
    std::lock_guard lock(mutex_);
    is_idle_ = idle;
  }
  int wake_descriptor() const override { return wake_; }
  void Close() override {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  uint64_t waited_nanoseconds() const override { return 0; }
  absl::Span<const int> descriptors() const override {
    return absl::MakeConstSpan(&wake_, 1);
  }

 private:
  void Wake() {
    bool is_idle;
    {
      std::lock_guard lock(mutex_);
      is_idle = is_idle_;
    }
    if (is_idle) WakeForNothing();
  }

  const int wake_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Published> published_;
  std::vector<uint64_t> requested_;
  std::vector<uint64_t> done_;
  std::optional<ring::SeekRequest> seek_;
  bool is_idle_ = false;
  bool is_waiting_ = false;
  bool is_closed_ = false;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_MEMORY_CHANNEL_H_
