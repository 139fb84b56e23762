// The daemon's end of one feed, driven by the test: memfds, ring and slab.
//
// A batch has an image field, uint8 [B, 3, 2, 2], every byte of which is the
// low byte of the batch's sequence, and a label field, int64 [B], whose rows
// are batch * batch_size + row, as are the sample indices.
//
// Publishing is for one thread at a time.

#ifndef DATASETD_TESTS_CLIENT_FAKE_FEED_H_
#define DATASETD_TESTS_CLIENT_FAKE_FEED_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "datasetd/v1/feed.pb.h"
#include "proto/feed_ring.h"
#include "proto/ring_protocol.h"

namespace datasetd::testing {

class FakeFeed {
 public:
  struct Options {
    uint32_t num_slots = 4;
    uint32_t batch_size = 4;
    uint64_t batches_per_epoch = 1000;
    uint64_t slab_bytes = 2 << 20;
    // The name of the slab's memfd.
    std::string slab_name = "slab";
    // Whether the pages of the ring keep their size.
    bool is_sealed = true;
  };

  explicit FakeFeed(const Options& options);
  ~FakeFeed();
  FakeFeed(const FakeFeed&) = delete;
  FakeFeed& operator=(const FakeFeed&) = delete;

  // The answer of OpenFeed, with a memfd export.
  v1::OpenFeedResponse Describe() const;

  // Reads the seek word, then publishes the next batch in a free slot. False if
  // no slot is free.
  bool Publish() { return PublishRows(options_.batch_size, 0); }
  bool PublishRows(uint32_t num_samples, uint32_t num_padding);
  // Publishes what the test says, whatever it is, in `slot`.
  void PublishRaw(uint32_t slot, const ring::SlotDescriptor& descriptor);
  // A published word that names no slot of the feed.
  void PublishBadSlot();

  // Publishes whatever is free until the feed is destroyed, and sleeps as a
  // daemon does: until the eventfd.
  void StartProducing();
  void StopProducing();

  // The state of the ring becomes kClosed.
  void CloseRing();

  // Published and not released.
  uint32_t num_held() const;
  uint64_t num_published() const { return sequence_.load(); }
  // Makes the daemon look asleep, so that the client must write the eventfd.
  void SetIdle(bool idle) { ring_.SetIdle(idle); }
  // How often the eventfd was written.
  uint64_t ReadEvent() const;
  char* slab() const { return slab_; }
  ring::DaemonPage* daemon_page() { return daemon_; }
  const ring::ClientPage* client_page() const { return client_; }

  int daemon_page_fd() const { return daemon_fd_.get(); }
  int client_page_fd() const { return client_fd_.get(); }
  int event_fd() const { return event_fd_.get(); }
  int slab_fd() const { return slab_fd_.get(); }

 private:
  int FreeSlot() const;
  void Produce();
  void WakeClient();

  const Options options_;
  FileDescriptor daemon_fd_;
  FileDescriptor client_fd_;
  FileDescriptor event_fd_;
  FileDescriptor slab_fd_;
  ring::DaemonPage* daemon_;
  ring::ClientPage* client_;
  char* slab_;
  ring::DaemonRing ring_;
  std::atomic<uint64_t> sequence_{0};
  uint64_t generation_ = 0;
  uint64_t epoch_ = 0;
  uint64_t batch_ = 0;
  std::array<uint64_t, ring::kMaxSlots> slot_sequences_ = {};
  std::atomic<bool> is_stopping_{false};
  std::thread producer_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CLIENT_FAKE_FEED_H_
