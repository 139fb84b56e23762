#include "server/load/replicate.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;

// Three pieces, the last one short.
constexpr int64_t kNumSamples = 5;
constexpr int64_t kSampleBytes = (int64_t{17} << 20) / kNumSamples + 3;
constexpr int64_t kStagingBytes = int64_t{16} << 20;

uint8_t ByteAt(int64_t at) { return static_cast<uint8_t>(at * 31 + at / 1000); }

class ReplicateTest : public ::testing::Test {
 protected:
  ReplicateTest() {
    Dataset::Contents contents;
    contents.name = "d";
    contents.backend = &from_;
    contents.num_samples = kNumSamples;
    contents.content_hash = "the hash";
    contents.fields = {{.name = "x", .dtype = Dtype::kUint8},
                       {.name = "image", .dtype = Dtype::kUint8}};
    contents.fields[0].shape = {kSampleBytes};
    contents.fields[1].shape = {-1, -1, 1};
    contents.fields[1].is_image = true;
    contents.fields[1].is_ragged = true;
    RaggedIndex index(/*pixel_bytes=*/1);
    for (int64_t i = 0; i < kNumSamples; ++i) index.Add({3 + i, 4});
    index.Describe(&contents.fields[1]);
    contents.memory.push_back(Filled(kNumSamples * kSampleBytes));
    contents.memory.push_back(Filled(index.size_bytes()));
    contents.packed.resize(2);
    contents.packed[1].memory =
        *from_.Allocate(static_cast<size_t>(index.index_bytes()));
    std::memcpy(contents.packed[1].memory->data(), index.samples().data(),
                static_cast<size_t>(index.index_bytes()));
    contents.packed[1].index = std::move(index);
    dataset_ = std::make_unique<const Dataset>(std::move(contents));
  }

  std::unique_ptr<DeviceMemory> Filled(int64_t size_bytes) {
    auto memory = *from_.Allocate(static_cast<size_t>(size_bytes));
    uint8_t* const bytes = memory->data();
    for (int64_t i = 0; i < size_bytes; ++i) bytes[i] = ByteAt(i);
    return memory;
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Copy() {
    Reservation reservation;
    return Replicate(*dataset_, &to_, std::move(reservation), counters_,
                     {.uid = 7, .staging = &staging_});
  }

  FakeBackend from_{{.is_host = false, .name = "cuda:0"}};
  FakeBackend to_{{.is_host = false, .name = "cuda:1"}};
  LoadCounters counters_;
  DecodeBudget staging_{
      {.sample_bytes = kStagingBytes, .total_bytes = 2 * kStagingBytes}};
  std::unique_ptr<const Dataset> dataset_;
};

TEST_F(ReplicateTest, AReplicaIsTheSame) {
  const auto replica = Copy();
  ASSERT_THAT(replica, IsOk());
  EXPECT_EQ(&(*replica)->backend(), &to_);
  EXPECT_EQ((*replica)->name(), "d");
  EXPECT_EQ((*replica)->content_hash(), "the hash");
  EXPECT_EQ((*replica)->num_samples(), kNumSamples);
  EXPECT_EQ((*replica)->fields(), dataset_->fields());
  for (size_t f = 0; f < 2; ++f) {
    EXPECT_EQ((*replica)->field_bytes(f), dataset_->field_bytes(f));
    EXPECT_NE((*replica)->field_data(f), dataset_->field_data(f));
    EXPECT_TRUE(std::equal(dataset_->field_data(f),
                           dataset_->field_data(f) + dataset_->field_bytes(f),
                           (*replica)->field_data(f)));
  }
  EXPECT_NE((*replica)->field_index_data(1), dataset_->field_index_data(1));
  EXPECT_EQ(std::memcmp(
                (*replica)->field_index_data(1), dataset_->field_index_data(1),
                static_cast<size_t>(dataset_->field_index(1)->index_bytes())),
            0);
  EXPECT_EQ((*replica)->field_sizes(1).size(), size_t{kNumSamples});
}

TEST_F(ReplicateTest, TheStagingMemoryIsChargedAndGivenBack) {
  ASSERT_THAT(Copy(), IsOk());
  EXPECT_EQ(staging_.peak_bytes(), kStagingBytes);
  EXPECT_EQ(staging_.used_bytes(), 0);
  EXPECT_EQ(to_.num_live_objects(), 0);
}

TEST_F(ReplicateTest, ACancelledCopyLeavesNothing) {
  counters_.Cancel();
  EXPECT_THAT(Copy(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(to_.num_live_objects(), 0);
  EXPECT_EQ(staging_.used_bytes(), 0);
}

TEST_F(ReplicateTest, ACancelledCopyDoesNotWaitForStagingMemory) {
  DecodeBudget::Share first(&staging_, 1);
  DecodeBudget::Share second(&staging_, 2);
  ASSERT_THAT(first.Take(kStagingBytes), IsOk());
  ASSERT_THAT(second.Take(kStagingBytes), IsOk());
  counters_.Cancel();
  EXPECT_THAT(Copy(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(staging_.used_bytes(), 2 * kStagingBytes);
}

TEST_F(ReplicateTest, WithoutMemoryItFailsAndLeavesNothing) {
  int num_failed = 0;
  for (int k = 1;; ++k) {
    to_.FailAllocation(k);
    const auto replica = Copy();
    if (replica.ok()) break;
    ++num_failed;
    EXPECT_THAT(replica, StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(to_.num_live_objects(), 0);
  }
  to_.FailAllocation(0);
  // A stream, two buffers, two fields and an index.
  EXPECT_EQ(num_failed, 6);
  EXPECT_EQ(staging_.used_bytes(), 0);
}

}  // namespace
}  // namespace datasetd
