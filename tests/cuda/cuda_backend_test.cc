#include "cuda/device/cuda_backend.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/stage_copy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/cuda/cuda_importer.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Cuda, BackendConformanceTest,
                         ::testing::Values(BackendUnderTest{
                             .name = "Device0",
                             .create = [] { return CreateCudaBackend({}); }}),
                         NameOfBackend);

// Skips without a device as the suite does.
class CudaBackendTest : public BackendConformanceTest {};

TEST_P(CudaBackendTest, DescribesAGpu) {
  EXPECT_EQ(backend_->info().name, "cuda:0");
  EXPECT_FALSE(backend_->info().is_host);
  EXPECT_TRUE(backend_->needs_polling());
  EXPECT_EQ(backend_->max_batches_per_launch(1), kMaxBatchesPerLaunch);
}

TEST_P(CudaBackendTest, OrdinalOutOfRangeIsInvalid) {
  EXPECT_THAT(
      CreateCudaBackend({.ordinal = -1}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cuda:-1")));
  EXPECT_THAT(
      CreateCudaBackend({.ordinal = 1000}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cuda:1000")));
}

TEST_P(CudaBackendTest, AChainWithoutScratchMemoryIsRefused) {
  const auto program = std::make_unique<AugmentProgram>();
  program->num_fields = 1;
  program->fields[0].num_steps = 1;
  const auto loaded = backend_->Load(*program);
  ASSERT_THAT(loaded, IsOk());
  const auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  const BatchTask batch = {.num_samples = 1};
  EXPECT_THAT(
      (*stream)->Augment(**loaded, {batch}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("scratch")));
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaBackendTest,
                         ::testing::Values(BackendUnderTest{
                             .name = "Device0",
                             .create = [] { return CreateCudaBackend({}); }}),
                         NameOfBackend);

constexpr size_t kPieceBytes = size_t{64} << 10;

// Pins host memory in pieces that a test can fill.
class CudaPiecesTest : public BackendConformanceTest {};

TEST_P(CudaPiecesTest, KernelsReadPinnedMemoryAcrossItsPieces) {
  constexpr size_t kNumBytes = 4 * kPieceBytes + 63 * kStageAlignment;
  const std::atomic<bool> is_cancelled = false;
  const auto memory = backend_->AllocateLargeHost(kNumBytes, is_cancelled);
  ASSERT_THAT(memory, IsOk());
  uint8_t* const from = (*memory)->data();
  for (size_t i = 0; i < kNumBytes; ++i) {
    from[i] = static_cast<uint8_t>(i % 251);
  }
  const auto to = backend_->Allocate(kNumBytes + kStageAlignment);
  ASSERT_THAT(to, IsOk());
  // The middle one begins in one piece and ends two further.
  std::vector<StageCopy> copies;
  for (const size_t end : {kPieceBytes - 16, 3 * kPieceBytes + 48, kNumBytes}) {
    const auto begin =
        copies.empty() ? int64_t{0}
                       : copies.back().from - from + copies.back().size_bytes;
    copies.push_back({.from = from + begin,
                      .to = (*to)->data() + begin,
                      .size_bytes = static_cast<int64_t>(end) - begin});
  }
  const auto list = backend_->Allocate(copies.size() * sizeof(StageCopy));
  ASSERT_THAT(list, IsOk());
  const auto stream = backend_->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  ASSERT_THAT(
      (*stream)->CopyToDevice((*list)->data(),
                              reinterpret_cast<const uint8_t*>(copies.data()),
                              copies.size() * sizeof(StageCopy)),
      IsOk());
  ASSERT_THAT(
      (*stream)->StageIn(reinterpret_cast<const StageCopy*>((*list)->data()),
                         static_cast<int64_t>(copies.size())),
      IsOk());
  std::vector<uint8_t> staged(kNumBytes);
  ASSERT_THAT((*stream)->CopyToHost(staged.data(), (*to)->data(), kNumBytes),
              IsOk());
  ASSERT_THAT((*stream)->Synchronize(), IsOk());
  EXPECT_EQ(std::memcmp(staged.data(), from, kNumBytes), 0);
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaPiecesTest,
                         ::testing::Values(BackendUnderTest{
                             .name = "Device0",
                             .create =
                                 [] {
                                   return CreateCudaBackend(
                                       {.pinned_piece_bytes = kPieceBytes});
                                 }}),
                         NameOfBackend);

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  return datasetd::testing::ConformanceMain(argc, argv,
                                            datasetd::testing::ImportCuda);
}
