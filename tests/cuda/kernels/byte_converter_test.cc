#include "cuda/kernels/host/byte_converter.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "cuda/kernels/host/byte_vector.h"
#include "cuda/kernels/host/host_targets.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/augment_case.h"

namespace datasetd {
namespace {

using testing::FieldBuilder;

struct Aligned {
  alignas(64) uint8_t bytes[4096 + 64];
};

// Converts 600 elements, `shift` elements off alignment, and compares with
// ImageElementBits.
void CheckConverter(const FieldProgram& field, const ByteVector* vector,
                    int shift, std::mt19937& engine) {
  const ByteConverter converter(field, vector);
  const int size_bytes = DtypeSizeBytes(field.out_dtype);
  constexpr int kCount = 600;
  uint8_t from[kCount];
  for (uint8_t& byte : from) byte = static_cast<uint8_t>(engine());
  const int count = kCount - static_cast<int>(engine() % 60) * field.channels;
  const int whole = count / field.channels * field.channels;
  Aligned to;
  std::memset(to.bytes, 0xA5, sizeof(to.bytes));
  uint8_t* out = to.bytes + shift * size_bytes;
  converter.ConvertPixels(from, whole, out);
  StreamFence();
  for (int i = 0; i < whole; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, out + i * size_bytes, size_bytes);
    ASSERT_EQ(bits, ImageElementBits(field, from, i, i % field.channels));
  }
  ASSERT_EQ(out[whole * size_bytes], 0xA5);
  for (int c = 0; c < field.channels; ++c) {
    std::memset(to.bytes, 0xA5, sizeof(to.bytes));
    converter.ConvertPlane(from, count, c, out);
    StreamFence();
    for (int i = 0; i < count; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, out + i * size_bytes, size_bytes);
      ASSERT_EQ(bits, ImageElementBits(field, from, i, c));
    }
    ASSERT_EQ(out[count * size_bytes], 0xA5);
  }
}

// The vectors of each target that has some, and null.
std::vector<const ByteVector*> Vectors() {
  std::vector<const ByteVector*> vectors = {nullptr};
  for (const HostTarget target : HostTargets()) {
    if (const ByteVector* vector = ByteVectorOf(target)) {
      vectors.push_back(vector);
    }
  }
  return vectors;
}

TEST(ByteConverterTest, EveryDtypeAndChainHasTheSameBits) {
  std::mt19937 engine(1);
  const auto vectors = Vectors();
  for (size_t v = 0; v < vectors.size(); ++v) {
    for (const int channels : {1, 2, 3, 4}) {
      for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat16,
                                Dtype::kBfloat16, Dtype::kFloat32}) {
        for (int chain = 0; chain < 6; ++chain) {
          FieldBuilder builder(1, 1, channels);
          builder.Out(dtype, Layout::kNhwc);
          if (chain == 1 || chain == 2) builder.Divide(255.0f);
          if (chain == 2 || chain == 3) builder.Normalize();
          if (chain == 4) builder.Normalize().Divide(3.0f);
          if (chain == 5) builder.Divide(7.0f).Normalize().Normalize();
          for (const int shift : {0, 1}) {
            SCOPED_TRACE(::testing::Message()
                         << "vector " << v << " " << channels << " "
                         << DtypeName(dtype) << " " << chain);
            CheckConverter(builder.Build(), vectors[v], shift, engine);
          }
        }
      }
    }
  }
}

TEST(ByteConverterTest, RandomParametersHaveTheSameBits) {
  std::mt19937 engine(2);
  std::uniform_real_distribution<float> mean(-2.0f, 2.0f);
  std::uniform_real_distribution<float> std(1e-3f, 300.0f);
  for (int round = 0; round < 500; ++round) {
    FieldBuilder builder(1, 1, 3);
    builder.Out(Dtype::kFloat32, Layout::kNhwc).Divide(std(engine));
    FieldProgram field = builder.Normalize().Build();
    for (int c = 0; c < 3; ++c) {
      field.value_ops[1].mean[c] = mean(engine);
      field.value_ops[1].std[c] = std(engine) * (c == 0 ? -1.0f : 1.0f);
    }
    for (const ByteVector* const vector : Vectors()) {
      CheckConverter(field, vector, 0, engine);
    }
  }
}

TEST(ByteConverterTest, UsualNormalisationIsVectorised) {
  if (BestByteVector() == nullptr) {
    GTEST_SKIP() << "no fused multiply-add here";
  }
  EXPECT_TRUE(ByteConverter(FieldBuilder(1, 1, 3)
                                .Out(Dtype::kFloat32, Layout::kNchw)
                                .Divide(255.0f)
                                .Normalize()
                                .Build())
                  .is_vectorised());
}

TEST(ByteConverterTest, ChainsThatAreNotExactFallBackToTables) {
  FieldProgram field = FieldBuilder(1, 1, 3)
                           .Out(Dtype::kFloat32, Layout::kNchw)
                           .Normalize()
                           .Build();
  // 0 / 0 is NaN; and a reciprocal that overflows.
  std::mt19937 engine(3);
  for (const float divisor : {0.0f, 1e-42f}) {
    field.value_ops[0].mean[1] = 0.0f;
    field.value_ops[0].std[1] = divisor;
    EXPECT_FALSE(ByteConverter(field).is_vectorised());
    CheckConverter(field, BestByteVector(), 0, engine);
  }
}

TEST(ByteVectorTest, EveryTargetSplitsAndMirrors) {
  std::mt19937 engine(4);
  uint8_t from[3 * 100];
  for (uint8_t& byte : from) byte = static_cast<uint8_t>(engine());
  for (const ByteVector* const vector : Vectors()) {
    if (vector == nullptr) continue;
    for (int count = 1; count <= 100; ++count) {
      // The last pixels, so that nothing may be read behind them.
      const std::vector<uint8_t> pixels(from, from + 3 * count);
      std::vector<uint8_t> mirrored(3 * count);
      vector->mirror_pixels3(pixels.data(), count, mirrored.data());
      for (int i = 0; i < 3 * count; ++i) {
        ASSERT_EQ(mirrored[i], pixels[3 * (count - 1 - i / 3) + i % 3]);
      }
      if (count < 16) continue;
      for (const bool is_mirrored : {false, true}) {
        std::vector<uint8_t> planes(3 * count);
        vector->split_pixels3(pixels.data(), count, is_mirrored, planes.data(),
                              count);
        for (int i = 0; i < 3 * count; ++i) {
          const int x = is_mirrored ? count - 1 - i % count : i % count;
          ASSERT_EQ(planes[i], pixels[3 * x + i / count]);
        }
      }
    }
  }
}

TEST(ByteConverterTest, FindsTheByteOfAFill) {
  FieldBuilder builder(4, 4, 3);
  builder.Out(Dtype::kFloat32, Layout::kNchw).Divide(255.0f);
  const ByteConverter found(
      FieldBuilder(builder).PadFill(1, {0.0f, 1.0f, 51.0f / 255.0f}).Build());
  ASSERT_TRUE(found.has_fill_bytes());
  EXPECT_EQ(found.fill_byte(0, 0), 0);
  EXPECT_EQ(found.fill_byte(0, 1), 255);
  EXPECT_EQ(found.fill_byte(0, 2), 51);
  const ByteConverter missing(
      FieldBuilder(builder).PadFill(1, {0.0f, 0.1f, 0.5f}).Build());
  EXPECT_FALSE(missing.has_fill_bytes());
}

}  // namespace
}  // namespace datasetd
