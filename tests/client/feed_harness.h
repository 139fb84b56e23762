// A FeedCore, over the attach socket of a fake daemon, without gRPC.

#ifndef DATASETD_TESTS_CLIENT_FEED_HARNESS_H_
#define DATASETD_TESTS_CLIENT_FEED_HARNESS_H_

#include <memory>
#include <string>

#include "client/feed/feed_core.h"
#include "tests/client/fake_attach_server.h"
#include "tests/client/fake_feed.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::testing {

inline constexpr char kGpuUuid[] = "uuuuuuuuuuuuuuuu";

class FeedHarness {
 public:
  enum class Device { kHost, kGpu };

  // On kGpu, an emulated one, the slab is imported from a descriptor as memory
  // of the GPU of kGpuUuid.
  explicit FeedHarness(Device device = Device::kHost)
      : FeedHarness(FakeFeed::Options(), device) {}
  explicit FeedHarness(const FakeFeed::Options& options,
                       Device device = Device::kHost);
  ~FeedHarness();

  FakeFeed& daemon() { return feed_; }
  FakeAttachServer& attach() { return attach_; }
  client::FeedCore& core() { return *core_; }
  // Publishes the next batch, and takes it.
  absl::StatusOr<client::BatchInfo> Take(uint64_t stream = 0);
  // Gives up the feed's reference; core() is not to be used afterwards.
  void Close();
  void Drop(const client::BatchInfo& batch) {
    core_->Drop(batch.slot, core_->batch_holder());
  }

 private:
  TempDir directory_{TempDir::Place::kShortPath};
  FakeFeed feed_;
  FakeAttachServer attach_;
  client::FeedCore* core_ = nullptr;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CLIENT_FEED_HARNESS_H_
