// Each case runs in four ways: the naive reference, AugmentHost, the plain
// loop, and the blocks of the CUDA kernel on the host; all slots must be equal,
// bit for bit, with every byte that is no output untouched.

#include "cuda/kernels/program/augment.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/dtype.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/augment_case.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/reference/augment_reference.h"
#include "tests/reference/rounding_reference.h"
#include "tests/testing/augment_plain.h"
#include "tests/testing/long_form.h"

namespace datasetd {
namespace {

using testing::AugmentCase;
using testing::ElementsField;
using testing::FieldBuilder;
using testing::RunAugmentBlocks;
using testing::RunsCase;
using testing::StoreCounts;

void CheckCase(std::vector<FieldProgram> fields, int num_samples,
               const std::vector<uint64_t>& epochs = {0, 1, 2},
               int offset_step = 0) {
  AugmentCase test(std::move(fields), num_samples, 12, 7, offset_step);
  std::vector<BatchTask> block_batches;
  StoreCounts counts;
  for (const uint64_t epoch : epochs) {
    block_batches.push_back(test.NewBatch(epoch));
    counts[block_batches.back().slot].resize(test.slot_bytes());
  }
  const bool has_counts =
      RunAugmentBlocks(test.program(), block_batches, test.Memory(), &counts);
  for (size_t i = 0; i < epochs.size(); ++i) {
    const BatchTask host = test.NewBatch(epochs[i]);
    const std::vector<uint8_t> expected = test.ExpectedSlot(host);
    AugmentHost(test.program(), host);
    EXPECT_EQ(test.Difference(test.Slot(host), expected), "") << "host";
    const BatchTask plain = test.NewBatch(epochs[i]);
    AugmentPlain(test.program(), plain);
    EXPECT_EQ(test.Difference(test.Slot(plain), expected), "") << "plain";
    EXPECT_EQ(test.Difference(test.Slot(block_batches[i]), expected), "")
        << "blocks";
    // Poison may be a value too: the counts tell what was written.
    if (!has_counts) continue;
    std::vector<uint8_t> expected_counts(test.slot_bytes(), 0);
    for (int k = 0; k < test.program().num_fields; ++k) {
      const FieldProgram& field = test.program().fields[k];
      const int elements =
          field.is_image ? field.out_height * field.out_width * field.channels
                         : field.in_width;
      std::fill_n(expected_counts.begin() + field.offset_bytes,
                  num_samples * elements * DtypeSizeBytes(field.out_dtype), 1);
    }
    std::fill_n(expected_counts.begin() + test.program().indices_offset_bytes,
                8 * num_samples, 1);
    EXPECT_EQ(counts[block_batches[i].slot], expected_counts) << "blocks";
  }
}

constexpr Dtype kOutDtypes[] = {Dtype::kUint8, Dtype::kFloat16,
                                Dtype::kBfloat16, Dtype::kFloat32};
constexpr PaddingMode kModes[] = {PaddingMode::kConstant, PaddingMode::kEdge,
                                  PaddingMode::kReflect,
                                  PaddingMode::kSymmetric};

// On the axes of a product.
size_t Index(Dtype dtype) {
  return std::find(std::begin(kOutDtypes), std::end(kOutDtypes), dtype) -
         std::begin(kOutDtypes);
}
size_t Index(Layout layout) { return layout == Layout::kNhwc ? 1 : 0; }

struct Size {
  int height, width;
};
// The kernels' PTX is interpreted: the large one is smaller in the short form.
const Size kSizes[] = {{1, 1},
                       {2, 3},
                       {28, 28},
                       {31, 33},
                       {32, 32},
                       {123, 66},
                       testing::IsFull() ? Size{224, 224} : Size{96, 112}};

TEST(AugmentTest, EverySizeChannelDtypeAndLayout) {
  for (size_t s = 0; s < std::size(kSizes); ++s) {
    const Size size = kSizes[s];
    const bool is_large = size.height * size.width > 5000;
    for (const int channels : {1, 2, 3, 4}) {
      for (const Dtype in : {Dtype::kUint8, Dtype::kFloat32}) {
        for (const Dtype out : kOutDtypes) {
          for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
            if (!RunsCase(s + channels + Index(in) + Index(out) + Index(layout),
                          4)) {
              continue;
            }
            SCOPED_TRACE(::testing::Message()
                         << size.height << "x" << size.width << "x" << channels
                         << " " << DtypeName(in) << " to " << DtypeName(out)
                         << " layout " << static_cast<int>(layout));
            FieldBuilder builder(size.height, size.width, channels);
            builder.In(in).Out(out, layout);
            builder.Pad(4, 3, 2, 1, PaddingMode::kConstant)
                .RandomCrop(size.height, size.width)
                .HorizontalFlip(0.5f);
            if (out != Dtype::kUint8) builder.Divide(255.0f).Normalize();
            CheckCase({builder.Build()}, is_large ? 1 : 7,
                      is_large ? std::vector<uint64_t>{1}
                               : std::vector<uint64_t>{0, 1});
          }
        }
      }
    }
  }
}

// Rows of which a vector's pixels are consecutive, mirrored, partly padding or
// nothing else.
TEST(AugmentTest, RunsOfPixels) {
  for (const int width : {16, 48}) {
    for (const int channels : {1, 3}) {
      for (const Dtype out : kOutDtypes) {
        for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
          if (!RunsCase(width / 32 + channels / 2 + Index(out) + Index(layout),
                        2)) {
            continue;
          }
          SCOPED_TRACE(::testing::Message()
                       << width << " x " << channels << " to " << DtypeName(out)
                       << " layout " << static_cast<int>(layout));
          FieldBuilder plain(20, width + 5, channels);
          plain.Out(out, layout)
              .HorizontalFlip(0.5f)
              .VerticalFlip(0.5f)
              .RandomCrop(20, width)
              .HorizontalFlip(0.5f);
          FieldBuilder padded(20, width, channels);
          padded.Out(out, layout)
              .HorizontalFlip(0.5f)
              .Pad(width, 20, width, 20, PaddingMode::kConstant)
              .HorizontalFlip(0.5f)
              .RandomCrop(20, width)
              .VerticalFlip(0.5f);
          FieldBuilder outside(20, width, channels);
          outside.Out(out, layout)
              .Pad(width, 0, width, 0, PaddingMode::kConstant)
              .HorizontalFlip(0.5f)
              .Crop(0, 0, 20, width);
          if (out != Dtype::kUint8) {
            for (FieldBuilder* field : {&plain, &padded, &outside}) {
              field->Divide(255.0f).Normalize();
            }
          }
          CheckCase({plain.Build(), padded.Build(), outside.Build()}, 9);
        }
      }
    }
  }
}

// Padding that shows pixels of the row again: as wide as it may be, of images
// narrower than a vector, and of a part of an image.
TEST(AugmentTest, RunsPaddedWithPixels) {
  for (const PaddingMode mode : kModes) {
    for (const int channels : {1, 3}) {
      for (const Dtype out : kOutDtypes) {
        for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
          if (!RunsCase(static_cast<int>(mode) + channels / 2 + Index(out) +
                            Index(layout),
                        2)) {
            continue;
          }
          SCOPED_TRACE(::testing::Message()
                       << static_cast<int>(mode) << " x " << channels << " to "
                       << DtypeName(out) << " layout "
                       << static_cast<int>(layout));
          std::vector<FieldBuilder> builders;
          builders.emplace_back(20, 24, channels)
              .HorizontalFlip(0.5f)
              .Pad(23, 5, 23, 7, mode)
              .HorizontalFlip(0.5f)
              .RandomCrop(20, 32)
              .VerticalFlip(0.5f);
          builders.emplace_back(9, 6, channels)
              .HorizontalFlip(0.5f)
              .Pad(5, 8, 5, 8, mode)
              .HorizontalFlip(0.5f);
          builders.emplace_back(9, 40, channels)
              .RandomCrop(9, 31)
              .HorizontalFlip(0.5f)
              .Pad(4, 0, 13, 0, mode)
              .AlternatingFlip();
          std::vector<FieldProgram> fields;
          for (FieldBuilder& builder : builders) {
            builder.Out(out, layout);
            if (out != Dtype::kUint8) builder.Divide(255.0f).Normalize();
            fields.push_back(builder.Build());
          }
          CheckCase(std::move(fields), 9);
        }
      }
    }
  }
}

TEST(AugmentTest, CopiesBitsWithoutValueOps) {
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat32}) {
    for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
      CheckCase({FieldBuilder(31, 33, 3)
                     .In(dtype)
                     .Out(dtype, layout)
                     .HorizontalFlip(0.5f)
                     .Build()},
                9);
    }
  }
}

TEST(AugmentTest, EveryPaddingModeOfEveryWidth) {
  for (const PaddingMode mode : kModes) {
    for (const int channels : {1, 3, 4}) {
      for (const int padding : {0, 1, 4, 6}) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(mode) << " "
                                          << channels << " " << padding);
        CheckCase({FieldBuilder(8, 7, channels)
                       .Out(Dtype::kFloat32, Layout::kNchw)
                       .Pad(padding, padding / 2, padding, padding, mode)
                       .Divide(255.0f)
                       .Build()},
                  5);
      }
    }
  }
}

TEST(AugmentTest, ConstantAndEdgePaddingMayExceedTheImage) {
  for (const PaddingMode mode : {PaddingMode::kConstant, PaddingMode::kEdge}) {
    CheckCase({FieldBuilder(3, 2, 3)
                   .Out(Dtype::kFloat16, Layout::kNhwc)
                   .Pad(40, 30, 20, 10, mode)
                   .RandomCrop(25, 50)
                   .Divide(255.0f)
                   .Build()},
              9);
  }
}

TEST(AugmentTest, FillOfTheLaterPadWins) {
  // Frames inside frames, all of other colours, also where a row and a column
  // of different pads meet.
  for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
    for (const Dtype out : kOutDtypes) {
      CheckCase({FieldBuilder(5, 6, 3)
                     .Out(out, layout)
                     .Pad(2, 0, 3, 1, PaddingMode::kConstant)
                     .Pad(0, 3, 0, 2, PaddingMode::kConstant)
                     .RandomCrop(9, 10)
                     .Pad(1, 1, 1, 1, PaddingMode::kConstant)
                     .Pad(3, 2, 1, 0, PaddingMode::kReflect)
                     .VerticalFlip(0.5f)
                     .Build()},
                9);
    }
  }
}

TEST(AugmentTest, FillThatIsAByteIsThatByte) {
  // -mean / std: the value of black after normalisation.
  FieldBuilder builder(32, 32, 3);
  builder.Out(Dtype::kFloat32, Layout::kNchw).Divide(255.0f).Normalize();
  const ValueOp& op = builder.Build().value_ops[1];
  std::vector<float> fill;
  for (int c = 0; c < 3; ++c) fill.push_back((0.0f - op.mean[c]) / op.std[c]);
  for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
    for (const Dtype out :
         {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32}) {
      FieldBuilder cifar = builder;
      CheckCase({cifar.Out(out, layout)
                     .PadFill(4, fill)
                     .RandomCrop(32, 32)
                     .HorizontalFlip(0.5f)
                     .Build()},
                16);
    }
  }
  // Padding of about the width of one store.
  for (const int padding : {1, 7, 8, 9, 10}) {
    for (const int channels : {1, 3}) {
      CheckCase({FieldBuilder(12, 13, channels)
                     .PadFill(padding, {0.0f, 128.0f, 255.0f})
                     .Build()},
                5);
    }
  }
}

TEST(AugmentTest, RandomChains) {
  std::mt19937 engine(3);
  const auto random = [&engine](int low, int high) {
    return low + static_cast<int>(engine() % (high - low + 1));
  };
  const int num_rounds = testing::IsFull() ? 300 : 150;
  for (int round = 0; round < num_rounds; ++round) {
    int height = random(1, 20);
    int width = random(1, 40);
    const int channels = random(1, 4);
    FieldBuilder builder(height, width, channels);
    std::string chain = std::to_string(height) + "x" + std::to_string(width) +
                        "x" + std::to_string(channels);
    const int num_moves = random(0, kMaxMoves);
    for (int k = 0; k < num_moves; ++k) {
      switch (random(0, 5)) {
        case 0: {
          const int h = random(1, height), w = random(1, width);
          builder.Crop(random(0, height - h), random(0, width - w), h, w);
          height = h;
          width = w;
          chain += " crop";
          break;
        }
        case 1:
          height = random((height + 1) / 2, height);
          width = random((width + 1) / 2, width);
          builder.RandomCrop(height, width);
          chain += " random_crop";
          break;
        case 2: {
          const PaddingMode mode = kModes[random(0, 3)];
          int most_y = 6, most_x = 6;
          if (mode == PaddingMode::kReflect) {
            most_y = std::min(6, height - 1);
            most_x = std::min(6, width - 1);
          } else if (mode == PaddingMode::kSymmetric) {
            most_y = std::min(6, height);
            most_x = std::min(6, width);
          }
          const int left = random(0, most_x), right = random(0, most_x);
          const int top = random(0, most_y), bottom = random(0, most_y);
          builder.Pad(left, top, right, bottom, mode);
          height += top + bottom;
          width += left + right;
          chain += " pad" + std::to_string(static_cast<int>(mode));
          break;
        }
        case 3:
          builder.HorizontalFlip(0.5f);
          chain += " hflip";
          break;
        case 4:
          builder.VerticalFlip(0.5f);
          chain += " vflip";
          break;
        default:
          builder.AlternatingFlip();
          chain += " aflip";
          break;
      }
    }
    if (random(0, 1) == 1) builder.Divide(255.0f);
    if (random(0, 1) == 1) builder.Normalize();
    if (random(0, 9) == 0) builder.Divide(3.0f).Normalize();
    builder.In(random(0, 3) == 0 ? Dtype::kFloat32 : Dtype::kUint8);
    builder.Out(kOutDtypes[random(0, 3)],
                random(0, 1) == 1 ? Layout::kNchw : Layout::kNhwc);
    SCOPED_TRACE(chain);
    CheckCase({builder.Build()}, random(1, 9), {0, 5}, random(0, 1));
  }
}

TEST(AugmentTest, WideAndTallImages) {
  // Wider than a tile of the host path and than a block's column map.
  for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
    CheckCase({FieldBuilder(5, 4096, 3)
                   .Out(Dtype::kFloat16, layout)
                   .Pad(3, 1, 2, 1, PaddingMode::kReflect)
                   .RandomCrop(6, 4095)
                   .HorizontalFlip(0.5f)
                   .Divide(255.0f)
                   .Build()},
              2, {0, 1});
    CheckCase({FieldBuilder(4100, 2, 1)
                   .Out(Dtype::kUint8, layout)
                   .VerticalFlip(0.5f)
                   .Build()},
              3, {0, 1});
  }
}

TEST(AugmentTest, OffsetsThatAreNotAligned) {
  for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
    for (const Dtype out : kOutDtypes) {
      CheckCase({FieldBuilder(32, 32, 3)
                     .Out(out, layout)
                     .HorizontalFlip(0.5f)
                     .Divide(255.0f)
                     .Build()},
                5, {0}, 1);
    }
  }
}

TEST(AugmentTest, SeveralFieldsAndIndices) {
  const FieldProgram image = FieldBuilder(28, 28, 1)
                                 .Out(Dtype::kFloat32, Layout::kNchw)
                                 .RandomCrop(24, 24)
                                 .Divide(255.0f)
                                 .Build();
  const FieldProgram mask = FieldBuilder(28, 28, 1).RandomCrop(24, 24).Build();
  CheckCase({image, ElementsField(Dtype::kUint8, Dtype::kInt64, 1), mask,
             ElementsField(Dtype::kFloat32, Dtype::kFloat32, 5),
             ElementsField(Dtype::kInt32, Dtype::kInt64, 1),
             ElementsField(Dtype::kInt16, Dtype::kInt16, 301)},
            100);
}

TEST(AugmentTest, ElementsOfEveryDtype) {
  for (int value = static_cast<int>(Dtype::kUint8);
       value <= static_cast<int>(kLastDtype); ++value) {
    const Dtype in = static_cast<Dtype>(value);
    std::vector<FieldProgram> fields = {ElementsField(in, in, 7),
                                        ElementsField(in, Dtype::kFloat16, 7),
                                        ElementsField(in, Dtype::kBfloat16, 7),
                                        ElementsField(in, Dtype::kFloat32, 7)};
    if (!IsFloatingPoint(in)) {
      fields.push_back(ElementsField(in, Dtype::kInt64, 7));
    }
    SCOPED_TRACE(DtypeName(in));
    CheckCase(std::move(fields), 600);
  }
}

TEST(AugmentTest, ShortBatchesOfOneLaunch) {
  AugmentCase test({FieldBuilder(32, 32, 3)
                        .Out(Dtype::kFloat16, Layout::kNhwc)
                        .HorizontalFlip(0.5f)
                        .Divide(255.0f)
                        .Build(),
                    ElementsField(Dtype::kUint8, Dtype::kInt64, 1)},
                   20);
  std::vector<BatchTask> batches;
  StoreCounts counts;
  for (int i = 0; i < kMaxBatchesPerLaunch; ++i) {
    batches.push_back(test.NewBatch(i));
    batches.back().num_samples = i % 21;
    counts[batches.back().slot].resize(test.slot_bytes());
  }
  RunAugmentBlocks(test.program(), batches, test.Memory(), &counts);
  for (const BatchTask& batch : batches) {
    const std::vector<uint8_t> expected = test.ExpectedSlot(batch);
    EXPECT_EQ(test.Difference(test.Slot(batch), expected), "");
    BatchTask host = test.NewBatch(batch.epoch);
    host.num_samples = batch.num_samples;
    AugmentHost(test.program(), host);
    EXPECT_EQ(test.Difference(test.Slot(host), expected), "");
  }
}

TEST(AugmentTest, EqualsTheDoubleReferenceWithinOneUlp) {
  for (const Dtype in : {Dtype::kUint8, Dtype::kFloat32}) {
    AugmentCase test({FieldBuilder(31, 33, 3)
                          .In(in)
                          .Out(Dtype::kFloat32, Layout::kNhwc)
                          .Pad(4, 4, 4, 4, PaddingMode::kReflect)
                          .RandomCrop(31, 33)
                          .Divide(255.0f)
                          .Normalize()
                          .Build()},
                     12);
    const BatchTask batch = test.NewBatch(3);
    AugmentHost(test.program(), batch);
    const reference::FieldOutput output =
        reference::AugmentField(test.program(), 0, batch);
    const std::vector<uint8_t> slot = test.Slot(batch);
    for (size_t i = 0; i < output.exact.size(); ++i) {
      const double value = reference::ElementValue(slot, Dtype::kFloat32, i);
      ASSERT_LE(std::fabs(value - output.exact[i]), output.tolerance[i] * 1.001)
          << i;
    }
  }
}

TEST(AugmentTest, DrawsByPositionWhereTheBatchSaysSo) {
  AugmentCase test({FieldBuilder(12, 14, 3)
                        .In(Dtype::kUint8)
                        .Out(Dtype::kUint8, Layout::kNchw)
                        .Pad(2, 2, 2, 2, PaddingMode::kEdge)
                        .RandomCrop(12, 14)
                        .HorizontalFlip(0.5f)
                        .Build()},
                   40);
  const BatchTask by_sample = test.NewBatch(3);
  AugmentHost(test.program(), by_sample);
  using Draws = std::tuple<int64_t, int64_t, int32_t>;
  for (const auto& [first, step, group] :
       {Draws{0, 1, 0}, {1'000'003, 7, 0}, {0xFFFFFFD8, 1, 0}, {12, 24, 4}}) {
    StoreCounts counts;
    std::vector<BatchTask> batches;
    for (int i = 0; i < 3; ++i) {
      batches.push_back(test.NewBatch(3));
      batches.back().first_draw = first;
      batches.back().draw_step = step;
      batches.back().draw_group = group;
      counts[batches.back().slot].resize(test.slot_bytes());
    }
    const std::vector<uint8_t> expected = test.ExpectedSlot(batches[0]);
    AugmentHost(test.program(), batches[0]);
    AugmentPlain(test.program(), batches[1]);
    RunAugmentBlocks(test.program(), {batches[2]}, test.Memory(), &counts);
    for (const BatchTask& batch : batches) {
      EXPECT_EQ(test.Difference(test.Slot(batch), expected), "");
    }
    EXPECT_NE(test.Slot(batches[0]), test.Slot(by_sample));
  }
}

TEST(AugmentTest, NanIsCanonicalOnlyWhereItIsComputed) {
  float pixels[4];
  const uint32_t nan_bits[4] = {0x7FC12345, 0xFFC00001, 0x7F800001, 0xFF800000};
  std::memcpy(pixels, nan_bits, sizeof(pixels));
  AugmentProgram program = {};
  program.indices_offset_bytes = -1;
  program.num_fields = 1;
  const int64_t index = 0;
  alignas(256) uint8_t slot[256];
  const BatchTask batch = {.slot = slot, .indices = &index, .num_samples = 1};
  program.fields[0] = FieldBuilder(2, 2, 1)
                          .In(Dtype::kFloat32)
                          .Out(Dtype::kFloat32, Layout::kNchw)
                          .Build();
  program.fields[0].source = reinterpret_cast<const uint8_t*>(pixels);
  AugmentHost(program, batch);
  EXPECT_EQ(std::memcmp(slot, nan_bits, sizeof(nan_bits)), 0);

  program.fields[0].num_value_ops = 1;
  program.fields[0].value_ops[0].kind = ValueOpKind::kDivide;
  program.fields[0].value_ops[0].divisor = 2.0f;
  uint32_t bits[4];
  AugmentHost(program, batch);
  std::memcpy(bits, slot, sizeof(bits));
  EXPECT_THAT(bits, ::testing::ElementsAre(0x7FC00000, 0x7FC00000, 0x7FC00000,
                                           0xFF800000));
  program.fields[0].out_dtype = Dtype::kFloat16;
  uint16_t halves[4];
  AugmentHost(program, batch);
  std::memcpy(halves, slot, sizeof(halves));
  EXPECT_THAT(halves, ::testing::ElementsAre(0x7E00, 0x7E00, 0x7E00, 0xFC00));
}

// Casts an array of `In` to one of `Out` by the kernel.
template <typename In, typename Out>
std::vector<Out> Cast(const std::vector<In>& from, Dtype in, Dtype out) {
  const auto size = static_cast<int>(from.size());
  struct alignas(256) Line {
    uint8_t bytes[256];
  };
  std::vector<Line> slot(from.size() * sizeof(Out) / sizeof(Line) + 1);
  auto* const to = reinterpret_cast<uint8_t*>(slot.data());
  AugmentProgram program = {};
  program.indices_offset_bytes = -1;
  program.num_fields = 1;
  program.fields[0] = ElementsField(in, out, size);
  program.fields[0].source = reinterpret_cast<const uint8_t*>(from.data());
  const int64_t index = 0;
  const BatchTask batch = {.slot = to, .indices = &index, .num_samples = 1};
  const auto slot_bytes = static_cast<int64_t>(slot.size() * sizeof(Line));
  StoreCounts counts;
  counts[to].resize(slot_bytes);
  RunAugmentBlocks(
      program, {batch},
      {{from.data(), static_cast<int64_t>(from.size() * sizeof(In))},
       {&index, sizeof(index)},
       {to, slot_bytes, /*may_write=*/true}},
      &counts);
  std::vector<Out> result(from.size());
  std::memcpy(result.data(), to, result.size() * sizeof(Out));
  return result;
}

// Rows of documents: steps, targets, positions, and numbers.
TEST(AugmentTest, EntriesNameTheSampleOfEachStep) {
  constexpr int32_t kSteps = 300;
  constexpr int32_t kRows = 3;
  constexpr int32_t kRowEntries = 2 * (kSteps + 1);
  std::vector<uint16_t> stream(1000);
  std::iota(stream.begin(), stream.end(), uint16_t{0});
  std::vector<int64_t> entries;
  std::vector<int64_t> samples;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i <= kSteps; ++i) {
      // Documents of 7 steps, from the end; the last row is short.
      const int64_t at = row * kSteps + i;
      entries.push_back(
          at >= 777 ? kNoEntry : MakeEntry(990 - at / 7 * 7 + at % 7, at % 7));
    }
    samples.push_back(row);
    for (int64_t i = 0; i <= kSteps; ++i) entries.push_back(100 * row + i);
  }
  AugmentProgram program = {};
  program.row_entries = kRowEntries;
  program.num_fields = 4;
  for (int f = 0; f < 4; ++f) {
    FieldProgram& field = program.fields[f];
    field.source = reinterpret_cast<const uint8_t*>(stream.data());
    field.sample_stride_bytes = sizeof(uint16_t);
    field.in_dtype = Dtype::kUint16;
    field.out_dtype = Dtype::kInt64;
    field.in_height = field.out_height = 1;
    field.in_width = field.out_width = kSteps;
    field.channels = field.out_channels = 1;
    field.entry_kind = EntryKind::kStep;
    field.entry_elements = 1;
    field.offset_bytes = f * 8192;
  }
  // Three rows of 2,400 bytes each.
  program.fields[1].first_entry = 1;
  program.fields[1].fills_starts = true;
  program.fields[1].fill = static_cast<uint64_t>(int64_t{-100});
  program.fields[2].entry_kind = EntryKind::kPosition;
  program.fields[3].entry_kind = EntryKind::kNumber;
  program.fields[3].out_dtype = Dtype::kInt32;
  program.fields[3].first_entry = kSteps + 1;
  program.indices_offset_bytes = 4 * 8192;
  constexpr size_t kSlotBytes = 5 * 8192;
  std::vector<uint64_t> host(kSlotBytes / 8 + 32);
  std::vector<uint64_t> blocks(host.size());
  const auto aligned = [](std::vector<uint64_t>& memory) {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (256 - at % 256) % 256 / 8;
  };
  BatchTask batch = {.slot = reinterpret_cast<uint8_t*>(aligned(host)),
                     .indices = entries.data(),
                     .samples = samples.data(),
                     .num_samples = kRows};
  AugmentHost(program, batch);
  batch.slot = reinterpret_cast<uint8_t*>(aligned(blocks));
  StoreCounts counts;
  counts[batch.slot].resize(kSlotBytes);
  RunAugmentBlocks(
      program, {batch},
      {{stream.data(), static_cast<int64_t>(stream.size() * 2)},
       {entries.data(), static_cast<int64_t>(entries.size() * 8)},
       {samples.data(), kRows * 8},
       {batch.slot, static_cast<int64_t>(kSlotBytes), /*may_write=*/true}},
      &counts);
  const uint64_t* const slot = aligned(host);
  EXPECT_EQ(std::memcmp(slot, aligned(blocks), kSlotBytes), 0);
  const auto* const numbers = reinterpret_cast<const int32_t*>(slot + 3 * 1024);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kSteps; ++i) {
      const int64_t at = row * kSteps + i;
      const auto step = [](int64_t place) {
        return 990 - place / 7 * 7 + place % 7;
      };
      const bool has_next = at + 1 < 777 && (at + 1) % 7 != 0;
      ASSERT_EQ(static_cast<int64_t>(slot[at]), at < 777 ? step(at) : 0);
      ASSERT_EQ(static_cast<int64_t>(slot[1024 + at]),
                has_next ? step(at + 1) : -100);
      ASSERT_EQ(static_cast<int64_t>(slot[2048 + at]), at < 777 ? at % 7 : 0);
      ASSERT_EQ(numbers[at], 100 * row + i);
    }
    ASSERT_EQ(static_cast<int64_t>(slot[4096 + row]), row);
  }
}

// Crops of sequences that have a length each: steps, two of them wide, and
// lengths.
TEST(AugmentTest, CropsHaveStepsAndThenTheFill) {
  constexpr int32_t kSteps = 300;
  constexpr int32_t kRows = 5;
  // The last one has no bytes to read.
  const std::vector<int32_t> lengths = {0, 299, 300, 1000, 0};
  std::vector<uint16_t> stream(2000);
  std::iota(stream.begin(), stream.end(), uint16_t{7});
  std::vector<RaggedSample> index;
  int64_t offset = 0;
  for (const int32_t length : lengths) {
    index.push_back({.offset_bytes = offset, .height = length, .width = 1});
    offset += (length * 2 + 15) / 16 * 16;
  }
  const std::vector<int64_t> samples = {3, 4, 1, 2, 0};
  AugmentProgram program = {};
  program.seed = 9;
  program.num_fields = 5;
  for (int f = 0; f < 5; ++f) {
    FieldProgram& field = program.fields[f];
    field.source = reinterpret_cast<const uint8_t*>(stream.data());
    field.ragged = index.data();
    field.in_dtype = field.out_dtype = Dtype::kUint16;
    field.in_height = field.out_height = 1;
    field.in_width = field.out_width = kSteps;
    field.channels = field.out_channels = 1;
    field.crop_kind = CropKind::kRandom;
    field.crop_op_index = kCropOpIndex;
    field.crop_length = kSteps;
    field.step_elements = 1;
    field.fill = 0xFFFE;
    field.offset_bytes = f * 16384;
  }
  program.fields[1].out_dtype = Dtype::kInt64;
  program.fields[1].crop_kind = CropKind::kCenter;
  program.fields[1].fill = static_cast<uint64_t>(int64_t{-100});
  program.fields[2].has_length = true;
  program.fields[2].in_dtype = program.fields[2].out_dtype = Dtype::kInt64;
  program.fields[2].in_width = program.fields[2].out_width = 1;
  // 20 samples of 100 steps, of two elements each in the first.
  for (const int f : {3, 4}) {
    program.fields[f].ragged = nullptr;
    program.fields[f].crop_kind = CropKind::kStart;
    program.fields[f].step_elements = f == 3 ? 2 : 1;
    program.fields[f].sample_steps = 100;
    program.fields[f].sample_stride_bytes = 200 * (f == 3 ? 2 : 1);
    program.fields[f].crop_length = f == 3 ? 150 : 7;
    program.fields[f].in_width = program.fields[f].out_width = f == 3 ? 300 : 7;
  }
  program.indices_offset_bytes = 5 * 16384;
  constexpr size_t kSlotBytes = 6 * 16384;
  std::vector<uint64_t> host(kSlotBytes / 8 + 32);
  std::vector<uint64_t> blocks(host.size());
  const auto aligned = [](std::vector<uint64_t>& memory) {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + (256 - at % 256) % 256 / 8;
  };
  BatchTask batch = {.slot = reinterpret_cast<uint8_t*>(aligned(host)),
                     .indices = samples.data(),
                     .num_samples = kRows,
                     .epoch = 3};
  AugmentHost(program, batch);
  batch.slot = reinterpret_cast<uint8_t*>(aligned(blocks));
  StoreCounts counts;
  counts[batch.slot].resize(kSlotBytes);
  RunAugmentBlocks(
      program, {batch},
      {{stream.data(), static_cast<int64_t>(stream.size() * 2)},
       {index.data(), static_cast<int64_t>(index.size() * sizeof(index[0]))},
       {samples.data(), kRows * 8},
       {batch.slot, static_cast<int64_t>(kSlotBytes), /*may_write=*/true}},
      &counts);
  const uint64_t* const slot = aligned(host);
  EXPECT_EQ(std::memcmp(slot, aligned(blocks), kSlotBytes), 0);
  // In parts, of which each finds its own samples alone.
  std::vector<uint64_t> parts(host.size());
  for (const int32_t first_row : {0, 2}) {
    std::vector<RaggedSample> own(
        index.size(), {.offset_bytes = 1 << 30, .height = 1 << 20, .width = 1});
    const int32_t end = first_row == 0 ? 2 : kRows;
    for (int32_t row = first_row; row < end; ++row) {
      own[samples[row]] = index[samples[row]];
    }
    for (int f = 0; f < 3; ++f) program.fields[f].ragged = own.data();
    batch.slot = reinterpret_cast<uint8_t*>(aligned(parts));
    batch.first_row = first_row;
    batch.num_rows = first_row == 0 ? 2 : 0;
    StoreCounts part_counts;
    part_counts[batch.slot].resize(kSlotBytes);
    RunAugmentBlocks(
        program, {batch},
        {{stream.data(), static_cast<int64_t>(stream.size() * 2)},
         {own.data(), static_cast<int64_t>(own.size() * sizeof(own[0]))},
         {samples.data(), kRows * 8},
         {batch.slot, static_cast<int64_t>(kSlotBytes), /*may_write=*/true}},
        &part_counts);
  }
  EXPECT_EQ(std::memcmp(slot, aligned(parts), kSlotBytes), 0);
  const auto at = [&](int f) {
    return reinterpret_cast<const uint8_t*>(slot) + f * 16384;
  };
  for (int row = 0; row < kRows; ++row) {
    const int64_t sample = samples[row];
    const int32_t length = lengths[sample];
    const int32_t left_out = std::max(0, length - kSteps);
    const Words4 words =
        Draw(9, 0, kCropOpIndex, 3, static_cast<uint32_t>(sample));
    const int32_t starts[] = {
        static_cast<int32_t>((uint64_t{words.word[0]} * (left_out + 1)) >> 32),
        left_out / 2};
    const int64_t first = 7 + index[sample].offset_bytes / 2;
    for (int i = 0; i < kSteps; ++i) {
      ASSERT_EQ(LoadAs<uint16_t>(at(0), row * kSteps + i),
                i < length ? first + starts[0] + i : 0xFFFE);
      ASSERT_EQ(LoadAs<int64_t>(at(1), row * kSteps + i),
                i < length ? first + starts[1] + i : -100);
      ASSERT_EQ(LoadAs<uint16_t>(at(3), row * kSteps + i),
                i < 200 ? 7 + sample * 200 + i : 0xFFFE);
    }
    ASSERT_EQ(LoadAs<int64_t>(at(2), row), std::min(length, kSteps));
    for (int i = 0; i < 7; ++i) {
      ASSERT_EQ(LoadAs<uint16_t>(at(4), row * 7 + i), 7 + sample * 100 + i);
    }
  }
}

// A GPU has instructions of its own for float16.
TEST(AugmentTest, FloatsAreRoundedToFloat16AsIeee754Says) {
  // Each float16, the middle to the next one, and their neighbours.
  std::vector<float> floats;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = reference::Decode(bits, reference::kFloat16);
    const double next =
        reference::Decode((bits + 1) % 65536, reference::kFloat16);
    for (const double x : {value, value / 2 + next / 2}) {
      const auto center = static_cast<float>(x);
      floats.push_back(center);
      floats.push_back(std::nextafter(center, INFINITY));
      floats.push_back(std::nextafter(center, -INFINITY));
    }
  }
  const auto halves =
      Cast<float, uint16_t>(floats, Dtype::kFloat32, Dtype::kFloat16);
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(halves[i], reference::Round(floats[i], reference::kFloat16))
        << std::hexfloat << floats[i];
  }
}

TEST(AugmentTest, Float16BecomesFloat32Exactly) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  const auto bits =
      Cast<uint16_t, uint32_t>(halves, Dtype::kFloat16, Dtype::kFloat32);
  for (const uint16_t half : halves) {
    const double value = reference::Decode(half, reference::kFloat16);
    ASSERT_EQ(bits[half], reference::Round(value, reference::kFloat32))
        << std::hex << half;
  }
}

// Ends at every sample.
class ImpatientRun final : public HostRun {
 public:
  ImpatientRun() { SetWish(kEndAtSample); }
  bool Pause() override { return true; }
};

TEST(AugmentTest, ABatchInPartsIsTheSame) {
  for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
    // More elements than lie between two checkpoints.
    AugmentCase test(
        {FieldBuilder(150, 151, 3).Out(Dtype::kFloat32, layout).Build(),
         FieldBuilder(9, 7, 1).Build()},
        5);
    const BatchTask whole = test.NewBatch(5);
    AugmentHost(test.program(), whole);
    for (const int32_t rows : {1, 2, 4}) {
      BatchTask part = test.NewBatch(5);
      part.num_rows = rows;
      for (; NumRows(part) > 0; part.first_row += rows) {
        AugmentHost(test.program(), part);
      }
      EXPECT_EQ(test.Slot(part), test.Slot(whole)) << rows;
    }
    const BatchTask interrupted = test.NewBatch(5);
    ImpatientRun run;
    const ScopedHostRun scoped_run(&run);
    HostPosition position;
    int num_calls = 1;
    while (!AugmentHostFrom(test.program(), interrupted, &position)) {
      ++num_calls;
    }
    EXPECT_GE(num_calls, 5);
    EXPECT_EQ(test.Slot(interrupted), test.Slot(whole));
  }
}

TEST(AugmentTest, TheLastPartHasTheFieldsWithoutSteps) {
  AugmentCase test({FieldBuilder(4, 4, 3).Build()}, 3);
  BatchTask batch = test.NewBatch(3);
  batch.num_rows = 2;
  AugmentPlan plan;
  ASSERT_TRUE(MakeAugmentPlan(nullptr, test.program(), &batch, 1, &plan));
  EXPECT_EQ(plan.num_blocks(), 0u);
  batch.first_row = 2;
  ASSERT_TRUE(MakeAugmentPlan(nullptr, test.program(), &batch, 1, &plan));
  EXPECT_GT(plan.num_blocks(), 0u);
}

TEST(AugmentTest, EmptyBatchWritesNothing) {
  AugmentCase test({FieldBuilder(4, 4, 3).Build()}, 3);
  BatchTask batch = test.NewBatch(0);
  batch.num_samples = 0;
  AugmentHost(test.program(), batch);
  EXPECT_THAT(test.Slot(batch), ::testing::Each(AugmentCase::kPoison));
  AugmentPlan plan;
  ASSERT_TRUE(MakeAugmentPlan(nullptr, test.program(), &batch, 1, &plan));
  EXPECT_EQ(plan.num_blocks(), 0u);
}

TEST(AugmentTest, IndicesAreNotWrittenUnlessAsked) {
  AugmentCase test({FieldBuilder(4, 4, 3).Build()}, 3);
  AugmentProgram program = test.program();
  const int64_t indices_offset = program.indices_offset_bytes;
  program.indices_offset_bytes = -1;
  const BatchTask host = test.NewBatch(0);
  AugmentHost(program, host);
  const BatchTask blocks = test.NewBatch(0);
  StoreCounts counts;
  counts[blocks.slot].resize(test.slot_bytes());
  RunAugmentBlocks(program, {blocks}, test.Memory(), &counts);
  std::vector<uint8_t> expected = test.ExpectedSlot(host);
  std::fill(expected.begin() + indices_offset, expected.end(),
            AugmentCase::kPoison);
  EXPECT_EQ(test.Difference(test.Slot(host), expected), "");
  EXPECT_EQ(test.Difference(test.Slot(blocks), expected), "");
}

}  // namespace
}  // namespace datasetd
