// Every backend's augment kernel against the naive reference, bit for bit,
// with every byte that is no output untouched. Several batches a launch.
//
// Without a GPU the CUDA half skips; with DATASETD_REQUIRE_GPU=1 it fails.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "cuda/backend/backend.h"
#include "cuda/backends.h"
#include "cuda/kernels/program/params.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/augment_case.h"
#include "tests/testing/long_form.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

constexpr int kNumResident = 12;
constexpr uint64_t kEpochs[] = {0, 1, 70001};
constexpr Dtype kOutDtypes[] = {Dtype::kUint8, Dtype::kFloat16,
                                Dtype::kBfloat16, Dtype::kFloat32};
constexpr Layout kLayouts[] = {Layout::kNchw, Layout::kNhwc};

class AugmentParityTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string device = GetParam();
    const std::vector<std::string> devices = ListDevices();
    if (std::count(devices.begin(), devices.end(), device) == 0) {
      const char* const required = std::getenv("DATASETD_REQUIRE_GPU");
      if (required != nullptr && std::string(required) == "1") {
        FAIL() << "no device " << device << ", and DATASETD_REQUIRE_GPU=1";
      }
      GTEST_SKIP() << "no device " << device;
    }
    auto backend = CreateBackend(device, {});
    ASSERT_TRUE(backend.ok()) << backend.status().ToString();
    backend_ = *std::move(backend);
  }

  // Runs one launch of a batch for each epoch.
  void Check(std::vector<FieldProgram> fields, int num_samples,
             int offset_step = 0) {
    const AugmentCase test(fields, num_samples, kNumResident, 7, offset_step);
    AugmentCase batches(std::move(fields), num_samples, kNumResident, 7,
                        offset_step);
    AugmentProgram program = test.program();
    auto stream = backend_->CreateStream(nullptr);
    ASSERT_TRUE(stream.ok()) << stream.status().ToString();
    std::vector<std::unique_ptr<DeviceMemory>> sources;
    for (int k = 0; k < program.num_fields; ++k) {
      FieldProgram& field = program.fields[k];
      const size_t bytes = field.sample_stride_bytes * kNumResident;
      auto source = backend_->Allocate(bytes);
      ASSERT_TRUE(source.ok()) << source.status().ToString();
      ASSERT_TRUE(
          (*stream)->CopyToDevice((*source)->data(), field.source, bytes).ok());
      field.source = (*source)->data();
      sources.push_back(*std::move(source));
    }
    auto loaded = backend_->Load(program);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();

    const size_t slot_bytes = test.slot_bytes();
    const size_t num_batches = std::size(kEpochs);
    auto slots = backend_->Allocate(slot_bytes * num_batches);
    ASSERT_TRUE(slots.ok()) << slots.status().ToString();
    auto indices = backend_->Allocate(num_samples * sizeof(int64_t));
    ASSERT_TRUE(indices.ok()) << indices.status().ToString();
    std::vector<BatchTask> on_host, on_device;
    for (size_t i = 0; i < num_batches; ++i) {
      on_host.push_back(batches.NewBatch(kEpochs[i]));
      BatchTask task = on_host.back();
      ASSERT_TRUE(
          (*stream)
              ->CopyToDevice((*indices)->data(),
                             reinterpret_cast<const uint8_t*>(task.indices),
                             num_samples * sizeof(int64_t))
              .ok());
      uint8_t* const slot = (*slots)->data() + i * slot_bytes;
      // The batch of the case is poison until something runs it.
      ASSERT_TRUE((*stream)->CopyToDevice(slot, task.slot, slot_bytes).ok());
      task.slot = slot;
      task.indices = reinterpret_cast<const int64_t*>((*indices)->data());
      on_device.push_back(task);
    }
    const size_t step =
        backend_->max_batches_per_launch(static_cast<int64_t>(slot_bytes));
    for (size_t i = 0; i < num_batches; i += step) {
      const absl::Status status =
          (*stream)->Augment(**loaded, absl::MakeSpan(on_device).subspan(
                                           i, std::min(step, num_batches - i)));
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
    std::vector<uint8_t> result(slot_bytes * num_batches);
    ASSERT_TRUE((*stream)
                    ->CopyToHost(result.data(), (*slots)->data(), result.size())
                    .ok());
    const absl::Status status = (*stream)->Synchronize();
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t i = 0; i < num_batches; ++i) {
      const auto begin = result.begin() + i * slot_bytes;
      EXPECT_EQ(
          test.Difference({begin, begin + static_cast<ptrdiff_t>(slot_bytes)},
                          batches.ExpectedSlot(on_host[i])),
          "")
          << "epoch " << kEpochs[i];
    }
  }

  std::unique_ptr<Backend> backend_;
};

TEST_P(AugmentParityTest, EveryDtypeLayoutAndNumberOfChannels) {
  for (const int channels : {1, 2, 3, 4}) {
    for (const Dtype in : {Dtype::kUint8, Dtype::kFloat32}) {
      for (const Dtype& out : kOutDtypes) {
        for (const Layout layout : kLayouts) {
          const int sum = channels + (in == Dtype::kFloat32 ? 2 : 0) +
                          static_cast<int>(&out - kOutDtypes) +
                          static_cast<int>(layout);
          if (!RunsCase(sum, 4)) continue;
          SCOPED_TRACE(::testing::Message()
                       << channels << " " << DtypeName(in) << " to "
                       << DtypeName(out) << " layout "
                       << static_cast<int>(layout));
          FieldBuilder builder(31, 33, channels);
          builder.In(in).Out(out, layout);
          builder.Pad(4, 3, 2, 1, PaddingMode::kConstant)
              .RandomCrop(31, 33)
              .HorizontalFlip(0.5f)
              .VerticalFlip(0.25f);
          if (out != Dtype::kUint8) builder.Divide(255.0f).Normalize();
          Check({builder.Build()}, 9);
        }
      }
    }
  }
}

TEST_P(AugmentParityTest, EverySize) {
  constexpr int kSizes[][2] = {{1, 1},    {2, 3},     {28, 28},  {32, 32},
                               {123, 66}, {224, 224}, {5, 4096}, {4100, 2}};
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const auto [height, width] = kSizes[i];
    for (const Layout layout : kLayouts) {
      if (!RunsCase(i + static_cast<size_t>(layout), 2)) continue;
      SCOPED_TRACE(::testing::Message() << height << "x" << width);
      Check({FieldBuilder(height, width, 3)
                 .Out(Dtype::kFloat16, layout)
                 .PadFill(4, {0.0f, 128.0f, 255.0f})
                 .RandomCrop(height, width)
                 .AlternatingFlip()
                 .Divide(255.0f)
                 .Build()},
            5);
    }
  }
}

TEST_P(AugmentParityTest, EveryPaddingMode) {
  for (const PaddingMode mode :
       {PaddingMode::kConstant, PaddingMode::kEdge, PaddingMode::kReflect,
        PaddingMode::kSymmetric}) {
    for (const Dtype out : kOutDtypes) {
      SCOPED_TRACE(::testing::Message()
                   << static_cast<int>(mode) << " " << DtypeName(out));
      Check({FieldBuilder(8, 7, 3)
                 .Out(out, Layout::kNhwc)
                 .Pad(6, 3, 5, 6, mode)
                 .RandomCrop(10, 9)
                 .Pad(1, 1, 1, 1, mode)
                 .Build()},
            17);
    }
  }
}

TEST_P(AugmentParityTest, SeveralFieldsOffsetsAndManySamples) {
  const FieldProgram image = FieldBuilder(28, 28, 1)
                                 .Out(Dtype::kFloat32, Layout::kNchw)
                                 .RandomCrop(24, 24)
                                 .Divide(255.0f)
                                 .Build();
  const FieldProgram mask = FieldBuilder(28, 28, 1).RandomCrop(24, 24).Build();
  for (const int offset_step : {0, 1}) {
    Check({image, ElementsField(Dtype::kUint8, Dtype::kInt64, 1), mask,
           ElementsField(Dtype::kFloat32, Dtype::kFloat32, 5),
           ElementsField(Dtype::kInt32, Dtype::kInt64, 1),
           ElementsField(Dtype::kFloat64, Dtype::kBfloat16, 301)},
          600, offset_step);
  }
}

std::string NameOfDevice(const ::testing::TestParamInfo<const char*>& info) {
  return std::string(info.param) == "cpu" ? "Host" : "Cuda";
}

INSTANTIATE_TEST_SUITE_P(Backends, AugmentParityTest,
                         ::testing::Values("cpu", "cuda:0"), NameOfDevice);

}  // namespace
}  // namespace datasetd::testing
