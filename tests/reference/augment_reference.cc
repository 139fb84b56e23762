#include "tests/reference/augment_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "cuda/kernels/program/params.h"
#include "tests/reference/philox_reference.h"
#include "tests/reference/rounding_reference.h"

namespace datasetd::reference {
namespace {

struct Pixel {
  std::array<float, kMaxChannels> value = {};
  // Final already: value ops pass it by.
  bool is_fill = false;
};

// [height][width]
using Image = std::vector<std::vector<Pixel>>;

Image MakeImage(int height, int width) {
  return Image(height, std::vector<Pixel>(width));
}

std::array<uint32_t, 4> DrawWords(uint64_t seed, const Move& move,
                                  uint64_t epoch, int64_t sample) {
  return Philox({0, move.op_index, static_cast<uint32_t>(epoch),
                 static_cast<uint32_t>(sample)},
                {static_cast<uint32_t>(seed % 4294967296u),
                 static_cast<uint32_t>(seed / 4294967296u)});
}

int UniformInt(uint32_t word, int bound) {
  return static_cast<int>(std::floor(static_cast<long double>(word) *
                                     static_cast<long double>(bound) /
                                     4294967296.0L));
}

double Uniform(uint32_t word) { return std::floor(word / 256.0) / 16777216.0; }

Image Crop(const Image& image, int top, int left, int height, int width) {
  Image out = MakeImage(height, width);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) out[y][x] = image.at(top + y).at(left + x);
  }
  return out;
}

Image Pad(const Image& image, const Move& move) {
  const int height = static_cast<int>(image.size());
  const int width = static_cast<int>(image[0].size());
  // numpy.pad's modes, one axis: where padding index i (negative before the
  // image, n and above behind it) is copied from.
  const auto source = [&move](int i, int n) {
    switch (move.padding_mode) {
      case PaddingMode::kEdge:
        return std::clamp(i, 0, n - 1);
      case PaddingMode::kReflect:  // 3 2 | 1 2 3 4 | 3 2
        return i < 0 ? -i : i >= n ? n - 2 - (i - n) : i;
      case PaddingMode::kSymmetric:  // 2 1 | 1 2 3 4 | 4 3
        return i < 0 ? -i - 1 : i >= n ? n - 1 - (i - n) : i;
      case PaddingMode::kConstant:
        break;
    }
    return i;
  };
  Image out = MakeImage(move.out_height, move.out_width);
  for (int y = 0; y < move.out_height; ++y) {
    for (int x = 0; x < move.out_width; ++x) {
      const int from_y = y - move.top;
      const int from_x = x - move.left;
      const bool is_inside =
          from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
      if (!is_inside && move.padding_mode == PaddingMode::kConstant) {
        out[y][x].is_fill = true;
        std::copy(move.fill, move.fill + kMaxChannels, out[y][x].value.begin());
      } else {
        out[y][x] = image.at(source(from_y, height)).at(source(from_x, width));
      }
    }
  }
  return out;
}

void FlipLeftRight(Image& image) {
  for (auto& row : image) std::reverse(row.begin(), row.end());
}

Image Apply(const Image& image, const Move& move, uint64_t seed, uint64_t epoch,
            int64_t sample) {
  const auto words = DrawWords(seed, move, epoch, sample);
  Image out = image;
  switch (move.kind) {
    case MoveKind::kCrop:
      return Crop(image, move.top, move.left, move.out_height, move.out_width);
    case MoveKind::kRandomCrop:
      return Crop(image,
                  UniformInt(words[0], move.in_height - move.out_height + 1),
                  UniformInt(words[1], move.in_width - move.out_width + 1),
                  move.out_height, move.out_width);
    case MoveKind::kPad:
      return Pad(image, move);
    case MoveKind::kHorizontalFlip:
      if (Uniform(words[0]) < move.probability) FlipLeftRight(out);
      return out;
    case MoveKind::kVerticalFlip:
      if (Uniform(words[0]) < move.probability) {
        std::reverse(out.begin(), out.end());
      }
      return out;
    case MoveKind::kAlternatingFlip: {
      const bool first = DrawWords(seed, move, 0, sample)[0] % 2 == 1;
      const bool is_odd_epoch = epoch % 2 == 1;
      if (first != is_odd_epoch) FlipLeftRight(out);
      return out;
    }
  }
  return out;
}

double Ulp(double x) {
  const float magnitude = std::fabs(static_cast<float>(x));
  const float next =
      std::nextafter(magnitude, std::numeric_limits<float>::infinity());
  return static_cast<double>(next) - static_cast<double>(magnitude);
}

// An element on its way through the value ops.
struct Value {
  float rounded;
  double exact;
  double tolerance;
};

Value ApplyValueOps(const FieldProgram& field, int channel, float x) {
  Value value = {x, static_cast<double>(x), 0};
  for (int i = 0; i < field.num_value_ops; ++i) {
    const ValueOp& op = field.value_ops[i];
    if (op.kind == ValueOpKind::kNormalize) {
      const double before = std::fabs(value.exact);
      value.rounded = value.rounded - op.mean[channel];
      value.exact = value.exact - static_cast<double>(op.mean[channel]);
      value.tolerance += Ulp(std::max(before, std::fabs(value.exact))) / 2;
    }
    const float divisor =
        op.kind == ValueOpKind::kDivide ? op.divisor : op.std[channel];
    value.rounded = value.rounded / divisor;
    value.exact = value.exact / static_cast<double>(divisor);
    value.tolerance =
        value.tolerance / std::fabs(static_cast<double>(divisor)) +
        Ulp(value.exact) / 2;
  }
  return value;
}

void Append(std::vector<uint8_t>& bytes, uint64_t bits, int size_bytes) {
  for (int i = 0; i < size_bytes; ++i) {
    bytes.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  }
}

uint32_t RoundTo(long double x, Dtype dtype) {
  switch (dtype) {
    case Dtype::kUint8:
      return RoundToUint8(static_cast<double>(x));
    case Dtype::kFloat16:
      return Round(x, kFloat16);
    case Dtype::kBfloat16:
      return Round(x, kBfloat16);
    default:
      return Round(x, kFloat32);
  }
}

uint32_t CopyBits(float x, Dtype dtype) {
  if (dtype == Dtype::kUint8) return static_cast<uint32_t>(x);
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

Image LoadImage(const FieldProgram& field, int64_t sample) {
  const uint8_t* from = field.source + sample * field.sample_stride_bytes;
  Image image = MakeImage(field.in_height, field.in_width);
  for (auto& row : image) {
    for (Pixel& pixel : row) {
      for (int c = 0; c < field.channels; ++c) {
        if (field.in_dtype == Dtype::kUint8) {
          pixel.value[c] = static_cast<float>(*from++);
        } else {
          std::memcpy(&pixel.value[c], from, sizeof(float));
          from += sizeof(float);
        }
      }
    }
  }
  return image;
}

void AppendImage(const FieldProgram& field, const Image& image,
                 FieldOutput& output) {
  const int size_bytes = DtypeSizeBytes(field.out_dtype);
  const bool is_copy =
      field.num_value_ops == 0 && field.in_dtype == field.out_dtype;
  const auto append = [&](const Pixel& pixel, int c) {
    Value value = {pixel.value[c], static_cast<double>(pixel.value[c]), 0};
    if (!pixel.is_fill) value = ApplyValueOps(field, c, pixel.value[c]);
    const uint32_t bits = is_copy && !pixel.is_fill
                              ? CopyBits(value.rounded, field.out_dtype)
                              : RoundTo(value.rounded, field.out_dtype);
    Append(output.bytes, bits, size_bytes);
    output.exact.push_back(value.exact);
    output.tolerance.push_back(value.tolerance);
  };
  if (field.layout == Layout::kNhwc) {
    for (const auto& row : image) {
      for (const Pixel& pixel : row) {
        for (int c = 0; c < field.channels; ++c) append(pixel, c);
      }
    }
    return;
  }
  for (int c = 0; c < field.channels; ++c) {
    for (const auto& row : image) {
      for (const Pixel& pixel : row) append(pixel, c);
    }
  }
}

uint64_t CastBits(const uint8_t* from, Dtype in, Dtype out) {
  uint64_t raw = 0;
  std::memcpy(&raw, from, DtypeSizeBytes(in));
  if (in == out) return raw;
  // 64 bits of mantissa hold every input exactly.
  static_assert(std::numeric_limits<long double>::digits >= 64);
  long double value = 0;
  switch (in) {
    case Dtype::kUint8:
      value = static_cast<uint8_t>(raw);
      break;
    case Dtype::kInt8:
      value = static_cast<int8_t>(raw);
      break;
    case Dtype::kInt16:
      value = static_cast<int16_t>(raw);
      break;
    case Dtype::kUint16:
      value = static_cast<uint16_t>(raw);
      break;
    case Dtype::kUint32:
      value = static_cast<uint32_t>(raw);
      break;
    case Dtype::kInt32:
      value = static_cast<int32_t>(raw);
      break;
    case Dtype::kInt64:
      value = static_cast<long double>(static_cast<int64_t>(raw));
      break;
    case Dtype::kFloat16:
      value = Decode(static_cast<uint32_t>(raw), kFloat16);
      break;
    case Dtype::kBfloat16:
      value = Decode(static_cast<uint32_t>(raw), kBfloat16);
      break;
    case Dtype::kFloat32: {
      float x;
      std::memcpy(&x, from, sizeof(x));
      value = x;
      break;
    }
    case Dtype::kFloat64: {
      double x;
      std::memcpy(&x, from, sizeof(x));
      value = x;
      break;
    }
  }
  if (out == Dtype::kInt64) {
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
  return RoundTo(value, out);
}

}  // namespace

FieldOutput AugmentField(const AugmentProgram& program, int field_index,
                         const BatchTask& batch) {
  const FieldProgram& field = program.fields[field_index];
  FieldOutput output;
  for (int i = 0; i < batch.num_samples; ++i) {
    const int64_t sample = batch.indices[i];
    if (field.is_image) {
      Image image = LoadImage(field, sample);
      for (int k = 0; k < field.num_moves; ++k) {
        const int group = std::max(batch.draw_group, 1);
        const int64_t draw =
            batch.draw_step == 0
                ? sample
                : batch.first_draw + i / group * batch.draw_step + i % group;
        image = Apply(image, field.moves[k], program.seed, batch.epoch, draw);
      }
      AppendImage(field, image, output);
      continue;
    }
    const uint8_t* from = field.source + sample * field.sample_stride_bytes;
    for (int k = 0; k < field.in_width; ++k) {
      Append(output.bytes,
             CastBits(from + k * DtypeSizeBytes(field.in_dtype), field.in_dtype,
                      field.out_dtype),
             DtypeSizeBytes(field.out_dtype));
    }
  }
  return output;
}

double ElementValue(const std::vector<uint8_t>& bytes, Dtype dtype,
                    size_t index) {
  const int size_bytes = DtypeSizeBytes(dtype);
  uint32_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * size_bytes, size_bytes);
  switch (dtype) {
    case Dtype::kUint8:
      return bits;
    case Dtype::kFloat16:
      return Decode(bits, kFloat16);
    case Dtype::kBfloat16:
      return Decode(bits, kBfloat16);
    default:
      return Decode(bits, kFloat32);
  }
}

}  // namespace datasetd::reference
