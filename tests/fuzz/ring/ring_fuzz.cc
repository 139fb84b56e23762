// Input: what a client writes into its page, and when the daemon looks.
//
// Byte 0 chooses the feed. Then commands, of a byte and what it needs: see
// Run. A model of the slots says what the daemon may publish.

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "proto/attach_protocol.h"
#include "proto/feed_ring.h"
#include "server/attach/ring_channel.h"
#include "server/order/client_order.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/feed_fixture.h"

namespace datasetd {
namespace {

constexpr int64_t kNumSamples = 10;
constexpr int64_t kBatchSize = 4;
constexpr int kMaxCommands = 400;
constexpr int kMaxBatches = 4;  // of a launch

void Check(bool condition, int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "ring_fuzz.cc:%d: broken\n", line);
  abort();
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool is_empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // Little-endian; 0 behind the end.
  uint64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= uint64_t{Byte()} << (8 * i);
    return word;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

class Client {
 public:
  Client(FakeBackend* backend, uint8_t kind) : backend_(backend) {
    testing::TestFeedOptions options;
    options.num_samples = kNumSamples;
    options.batch_size = kBatchSize;
    options.num_slots = 2 + kind % 7;
    num_slots_ = options.num_slots;
    if ((kind & 0x80) != 0) {
      order_ = std::make_shared<ClientOrder>(ClientOrder::Options{
          .num_samples = kNumSamples, .batch_size = kBatchSize, .capacity = 6});
      options.order = order_;
    }
    auto channel = RingChannel::Create(num_slots_);
    Check(channel.ok());
    daemon_page_ = static_cast<const ring::DaemonPage*>(Map(
        **channel, attach::kDaemonPageFd, sizeof(ring::DaemonPage), PROT_READ));
    client_page_ = static_cast<ring::ClientPage*>(
        Map(**channel, attach::kClientPageFd, sizeof(ring::ClientPage),
            PROT_READ | PROT_WRITE));
    feed_ = testing::MakeTestFeed(backend, options, *std::move(channel));
  }
  ~Client() {
    backend_->CompleteAll();
    Check(feed_->Collect().ok());
    Check(feed_->is_quiescent());
    feed_.reset();
    munmap(const_cast<ring::DaemonPage*>(daemon_page_),
           sizeof(ring::DaemonPage));
    munmap(client_page_, sizeof(ring::ClientPage));
  }

  void Run(Input& input) {
    for (int i = 0; i < kMaxCommands && !input.is_empty(); ++i) {
      const uint8_t command = input.Byte();
      switch (command % 9) {
        case 0: {  // any word, anywhere
          const size_t offset =
              (input.Byte() << 8 | input.Byte()) %
              (sizeof(ring::ClientPage) - sizeof(uint64_t) + 1);
          const uint64_t word = input.Word();
          std::memcpy(reinterpret_cast<char*>(client_page_) + offset, &word,
                      sizeof(word));
          break;
        }
        case 1:  // a release of a number that is about right
          WriteDone(command / 9 % num_slots_,
                    last_sequence_ - 3 + input.Byte() % 6);
          break;
        case 2: {  // an honest release
          const auto held = held_.find(command / 9 % num_slots_);
          if (held != held_.end()) WriteDone(held->first, held->second);
          break;
        }
        case 3: {
          const uint64_t generation = input.Byte();
          client_page_->seek_begun = generation;
          client_page_->seek_epoch = input.Byte();
          client_page_->seek_batch = input.Byte() % 5;
          client_page_->seek_generation = generation;
          break;
        }
        case 4:
        case 5:
          Scan();
          break;
        case 6:
          if (feed_->CanLaunch()) {
            Check(feed_->Launch(1 + command / 9 % kMaxBatches).ok());
          }
          break;
        case 7:
          backend_->CompleteNext();
          Check(feed_->Collect().ok());
          CheckPublished();
          break;
        case 8:
          Send(input);
          break;
      }
    }
  }

 private:
  static void* Map(const FeedChannel& channel, int number, size_t size,
                   int protection) {
    void* const page = mmap(nullptr, size, protection, MAP_SHARED,
                            channel.descriptors()[number], 0);
    Check(page != MAP_FAILED);
    return page;
  }

  void WriteDone(uint32_t slot, uint64_t sequence) {
    client_page_->release_requested[slot] = sequence;
    client_page_->release_done[slot] = sequence;
  }

  void Scan() {
    for (auto slot = held_.begin(); slot != held_.end();) {
      const bool is_released =
          client_page_->release_done[slot->first] == slot->second;
      slot = is_released ? held_.erase(slot) : std::next(slot);
    }
    feed_->Scan(++now_);
    Check(feed_->stats().num_slots_held == held_.size());
  }

  void Send(Input& input) {
    std::vector<uint32_t> sizes;
    std::vector<int64_t> indices;
    const uint64_t generation = input.Byte() % 4;
    const FeedPosition start = {input.Byte() % 3u, input.Byte() % 8u};
    for (int i = input.Byte() % 8; i > 0; --i) {
      sizes.push_back(input.Byte() % (kBatchSize + 2));
      for (uint32_t k = 0; k < sizes.back(); ++k) {
        indices.push_back(static_cast<int8_t>(input.Byte()) % 12);
      }
    }
    if (order_ == nullptr) return;
    // Refused or not, the feed goes on.
    (void)order_->Append({.generation = generation,
                          .start = start,
                          .batch_sizes = sizes,
                          .indices = indices});
  }

  // Checks that the batches published since the last call are in sequence, and
  // in slots that were free.
  void CheckPublished() {
    for (;; ++last_sequence_) {
      const uint64_t sequence = last_sequence_ + 1;
      const uint64_t word = daemon_page_->published[sequence % num_slots_];
      if (ring::PublishedSequence(word) < sequence) return;
      Check(ring::PublishedSequence(word) == sequence);
      const uint32_t slot = ring::PublishedSlot(word);
      Check(slot < num_slots_);
      Check(held_.emplace(slot, sequence).second);
      const ring::SlotDescriptor& batch = daemon_page_->slots[slot];
      Check(batch.sequence == sequence);
      Check(batch.generation >= last_generation_);
      last_generation_ = batch.generation;
      Check(batch.epoch <= 0xFFFFFFFF);
      Check(batch.num_samples >= 1 && batch.num_samples <= kBatchSize);
      Check(batch.num_padding == 0);
      if (order_ == nullptr) Check(batch.batch < feed_->batches_per_epoch());
      const uint8_t* const rows =
          feed_->slab().data() + slot * testing::kTestSlotStrideBytes;
      for (uint32_t row = 0; row < batch.num_samples; ++row) {
        Check(rows[row] < kNumSamples);
        // Sample i is the byte i; the daemon's order is 0, 1, 2, ...
        if (order_ == nullptr) {
          Check(rows[row] == batch.batch * kBatchSize + row);
        }
      }
    }
  }

  FakeBackend* const backend_;
  uint32_t num_slots_;
  std::shared_ptr<ClientOrder> order_;
  std::unique_ptr<Feed> feed_;
  const ring::DaemonPage* daemon_page_;
  ring::ClientPage* client_page_;
  std::map<uint32_t, uint64_t> held_;  // slot: sequence
  uint64_t last_sequence_ = 0;
  uint64_t last_generation_ = 0;
  uint64_t now_ = 0;
};

}  // namespace
}  // namespace datasetd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const backend = new datasetd::FakeBackend(
      {.needs_polling = true,
       .max_batches_per_launch = datasetd::kMaxBatches,
       .max_launches_in_flight = 64});
  datasetd::Input input(data, size);
  datasetd::Client client(backend, input.Byte());
  client.Run(input);
  return 0;
}
