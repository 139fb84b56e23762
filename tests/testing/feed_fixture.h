// Feeds over a small dataset for tests: sample i is the byte i, modulo 256.

#ifndef DATASETD_TESTS_TESTING_FEED_FIXTURE_H_
#define DATASETD_TESTS_TESTING_FEED_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "cuda/backend/backend.h"
#include "server/dataset/dataset.h"
#include "server/feed/feed.h"
#include "server/feed/feed_channel.h"
#include "server/feed/scratch_pool.h"
#include "server/files/mapped_file.h"
#include "server/order/client_order.h"
#include "tests/testing/memory_channel.h"

namespace datasetd::testing {

// One field, uint8 [1, 1, 1].
std::shared_ptr<const Dataset> MakeByteDataset(
    Backend* backend, int64_t num_samples,
    std::shared_ptr<const MappedFile> file = nullptr);
// A file that has each of these samples at the beginning of kMappedSampleBytes.
std::shared_ptr<const MappedFile> MakeMappedBytes(int64_t num_samples);
inline constexpr int64_t kMappedSampleBytes = 16 << 10;

struct TestFeedOptions {
  uint64_t id = 1;
  uint32_t uid = 0;
  int64_t sample_operations = 0;
  int64_t num_samples = 10;
  int64_t batch_size = 4;
  uint32_t num_slots = 3;
  bool drop_last = false;
  bool shuffle = false;
  int64_t world_size = 1;
  FeedPosition start;
  std::function<void()> on_done;
  std::shared_ptr<ClientOrder> order = nullptr;
  std::shared_ptr<const WeightTable> weights = nullptr;
  ScratchPool::Lease scratch = {};
  // The samples are read from there.
  std::shared_ptr<const MappedFile> file = nullptr;
};

struct TestFeed {
  std::unique_ptr<Feed> feed;
  MemoryChannel* channel;  // the feed's
};

// Unless shuffled, batch b of every epoch holds samples b * batch_size and on.
// Aborts on an error.
TestFeed MakeTestFeed(Backend* backend, const TestFeedOptions& options);
// The same over a channel of the caller's.
std::unique_ptr<Feed> MakeTestFeed(Backend* backend,
                                   const TestFeedOptions& options,
                                   std::unique_ptr<FeedChannel> channel);
// The distance of the slots of MakeTestFeed, with up to 32 samples a batch.
inline constexpr uint64_t kTestSlotStrideBytes = 512;

// The bytes of a published batch, as the client sees them.
std::vector<uint8_t> BatchBytes(const Feed& feed,
                                const MemoryChannel::Published& published);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_FEED_FIXTURE_H_
