#include "tests/client/feed_harness.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "client/connection/address.h"
#include "client/connection/lease.h"
#include "client/feed/ring_pages.h"
#include "client/feed/slab.h"
#include "client/feed/slot_layout.h"
#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/backing.h"

namespace datasetd::testing {
namespace {

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "harness: %s\n", value.status().ToString().c_str());
    std::abort();
  }
  return *std::move(value);
}

FakeFeed::Options OnGpu(FakeFeed::Options options) {
  emulated_driver::Uuid uuid;
  std::copy_n(kGpuUuid, uuid.size(), uuid.begin());
  options.slab_name =
      emulated_driver::BackingName(emulated_driver::BackingKind::kVmm, uuid, 1);
  return options;
}

}  // namespace

FeedHarness::FeedHarness(const FakeFeed::Options& options, Device device)
    : feed_(device == Device::kHost ? options : OnGpu(options)),
      attach_(directory_.File("datasetd.sock")) {
  attach_.SetFeed(&feed_);
  v1::OpenFeedResponse response = feed_.Describe();
  if (device == Device::kGpu) {
    response.mutable_slab()->set_kind(v1::EXPORT_KIND_CUDA_VMM_FD);
    response.mutable_slab()->set_device("cuda:0");
    response.mutable_slab()->set_gpu_uuid(kGpuUuid);
  }
  client::AttachedDescriptors descriptors;
  client::FeedCore::Parts parts;
  parts.lease = ValueOrDie(client::Lease::Attach(
      ValueOrDie(client::ResolveAddress(directory_.File("datasetd.sock"))),
      FakeAttachServer::token(), response.feed_id(),
      /*arrays=*/{}, {.timeout = absl::Seconds(10)}, &descriptors));
  parts.event = std::move(descriptors.event);
  parts.layout = ValueOrDie(client::SlotLayout::Create(
      response.layout(), response.slab().size_bytes()));
  parts.pages = ValueOrDie(client::RingPages::Map(descriptors.daemon_page.get(),
                                                  descriptors.client_page.get(),
                                                  parts.layout.num_slots()));
  parts.slab =
      ValueOrDie(client::Slab::Import(response.slab(), descriptors.slab.get()));
  parts.cursor.batches_per_epoch = response.batches_per_epoch();
  core_ = client::FeedCore::Create(std::move(parts));
}

FeedHarness::~FeedHarness() { Close(); }

absl::StatusOr<client::BatchInfo> FeedHarness::Take(uint64_t stream) {
  EXPECT_TRUE(feed_.Publish());
  return core_->Next(stream, absl::ZeroDuration());
}

void FeedHarness::Close() {
  if (client::FeedCore* const core = std::exchange(core_, nullptr)) {
    core->Close();
  }
}

}  // namespace datasetd::testing
