// The feed channel used in production: two memfds shared with one client.
// Layout: proto/feed_ring.h; protocol: proto/ring_protocol.h.

#ifndef DATASETD_SERVER_ATTACH_RING_CHANNEL_H_
#define DATASETD_SERVER_ATTACH_RING_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "proto/attach_protocol.h"
#include "proto/ring_protocol.h"
#include "server/feed/feed_channel.h"

namespace datasetd {

class RingChannel : public FeedChannel {
 public:
  // The daemon page is sealed read-only for the client; the client page is
  // sealed against resizing. Both are resident. REQUIRES: num_slots in
  // 1..kMaxSlots.
  //   INTERNAL, RESOURCE_EXHAUSTED  a system call failed; names it
  static absl::StatusOr<std::unique_ptr<FeedChannel>> Create(
      uint32_t num_slots);
  ~RingChannel() override;

  void Publish(uint32_t slot, const ring::SlotDescriptor& batch) override;
  bool IsReleaseRequested(uint32_t slot, uint64_t sequence) const override {
    return ring_.IsReleaseRequested(slot, sequence);
  }
  uint64_t ReleaseDone(uint32_t slot) const override {
    return ring_.ReleaseDone(slot);
  }
  bool IsClientWaiting() const override { return ring_.IsClientWaiting(); }
  std::optional<ring::SeekRequest> ReadSeek() override {
    return ring_.ReadSeek();
  }
  void SetIdle(bool idle) override { ring_.SetIdle(idle); }
  int wake_descriptor() const override {
    return descriptors_[attach::kEventFd];
  }
  void Close() override;
  uint64_t waited_nanoseconds() const override {
    return ring_.waited_nanoseconds();
  }
  absl::Span<const int> descriptors() const override { return descriptors_; }

 private:
  RingChannel(FileDescriptor daemon_fd, FileDescriptor client_fd,
              FileDescriptor wake_fd, void* daemon_page, void* client_page,
              uint32_t num_slots);

  const FileDescriptor daemon_fd_;
  const FileDescriptor client_fd_;
  const FileDescriptor wake_fd_;
  void* const daemon_page_;
  void* const client_page_;
  const int descriptors_[3];
  ring::DaemonRing ring_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_RING_CHANNEL_H_
