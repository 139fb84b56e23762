#include "tests/fuzz/pipelines/pipeline_reader.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "base/dtype.h"
#include "cuda/kernels/math/interpolation.h"

namespace datasetd {
namespace {

constexpr int kMaxOps = 16;
constexpr int64_t kMaxHugeElements = int64_t{1} << 31;

constexpr int64_t kExtremes[] = {
    0,
    1,
    -1,
    255,
    4096,
    65536,
    (1 << 24) - 1,
    1 << 24,
    (1 << 24) + 1,
    1 << 28,
    (1 << 29) - 1,
    1 << 29,
    (1 << 29) + 1,
    (1 << 30) - 1,
    1 << 30,
    (1 << 30) + 1,
    std::numeric_limits<int32_t>::max(),
    int64_t{1} << 31,
    int64_t{1} << 32,
    int64_t{1} << 40,
    int64_t{1} << 62,
    std::numeric_limits<int64_t>::max(),
    std::numeric_limits<int64_t>::min(),
    std::numeric_limits<int32_t>::min(),
};

// Of a huge image; the other side is short.
constexpr int64_t kHugeSides[] = {
    4096,
    1 << 20,
    (1 << 24) - 1,
    1 << 24,
    (1 << 24) + 1,
    1 << 28,
    (1 << 29) - 1,
    1 << 29,
    (1 << 29) + 1,
    (1 << 30) - 1,
    1 << 30,
    (1 << 30) + 1,
    std::numeric_limits<int32_t>::max(),
};

constexpr double kExtremeReals[] = {
    0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    1e-7,
    1e-6,
    1e6,
    1e9,
    -1e9,
    90.0,
    180.0,
    45.0,
    -360.0,
    1e-38,
    1e38,
    1e39,
    -1e39,
    1e300,
    std::numeric_limits<double>::infinity(),
    -std::numeric_limits<double>::infinity(),
    std::numeric_limits<double>::quiet_NaN(),
};

class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  bool is_empty() const { return bytes_.empty(); }

  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_[0];
    bytes_.remove_prefix(1);
    return byte;
  }
  bool Bit() { return (Byte() & 1) != 0; }

  int64_t Number() {
    const uint8_t byte = Byte();
    if (byte < 80) return byte % 8;
    if (byte < 160) return byte - 80;
    if (byte < 240) {
      const auto change = static_cast<int8_t>(Byte());
      const int64_t extreme = kExtremes[(byte - 160) % std::size(kExtremes)];
      int64_t changed = 0;
      return __builtin_add_overflow(extreme, int64_t{change}, &changed)
                 ? extreme
                 : changed;
    }
    int32_t number = 0;
    for (int i = 0; i < 4; ++i) {
      number =
          static_cast<int32_t>(static_cast<uint32_t>(number) << 8 | Byte());
    }
    return number;
  }

  double Real() {
    const uint8_t byte = Byte();
    if (byte < 128) return byte / 64.0;
    if (byte < 224) return kExtremeReals[byte % std::size(kExtremeReals)];
    return static_cast<double>(Number()) / (1 + Byte());
  }
  Interval Range() {
    const double low = Real();
    return {low, (Byte() & 3) == 0 ? Real() : low + Byte() / 64.0};
  }

  template <typename T>
  std::vector<T> Values() {
    std::vector<T> values(Byte() % 6);
    for (T& value : values) {
      const double real = Real();
      // What a float cannot hold is not sent as one.
      value = static_cast<T>(std::abs(real) <= std::numeric_limits<T>::max() ||
                                     !std::isfinite(real)
                                 ? real
                                 : 1.0);
    }
    return values;
  }

  InterpolationMode Interpolation() {
    return static_cast<InterpolationMode>(1 + Byte() % 5);
  }
  PaddingMode Mode() { return static_cast<PaddingMode>(1 + Byte() % 5); }
  Padding Sides() {
    Padding padding;
    for (int64_t* side :
         {&padding.left, &padding.top, &padding.right, &padding.bottom}) {
      *side = Number();
    }
    return padding;
  }
  Dtype AnyDtype() { return static_cast<Dtype>(Byte() % 16); }
  std::optional<PointXy> Point() {
    if (!Bit()) return std::nullopt;
    const double x = Real();
    return PointXy{x, Real()};
  }
  std::optional<Interval> MaybeRange() {
    if (!Bit()) return std::nullopt;
    return Range();
  }

 private:
  absl::Span<const uint8_t> bytes_;
};

TransformSpec ReadOp(Reader& in, int depth);

std::vector<TransformSpec> ReadOps(Reader& in, int most, int depth) {
  std::vector<TransformSpec> ops;
  while (!in.is_empty() && static_cast<int>(ops.size()) < most) {
    ops.push_back(ReadOp(in, depth));
  }
  return ops;
}

// The order of evaluation is that of the statements.
TransformSpec ReadOp(Reader& in, int depth) {
  switch (in.Byte() % 42) {
    case 0: {
      PadSpec op;
      op.padding = in.Sides();
      op.padding_mode = in.Mode();
      if (in.Bit()) op.fill = in.Values<float>();
      return op;
    }
    case 1: {
      CropSpec op;
      op.top = in.Number();
      op.left = in.Number();
      op.height = in.Number();
      op.width = in.Number();
      return op;
    }
    case 2: {
      CenterCropSpec op;
      op.height = in.Number();
      op.width = in.Number();
      return op;
    }
    case 3: {
      RandomCropSpec op;
      op.height = in.Number();
      op.width = in.Number();
      if (in.Bit()) op.padding = in.Sides();
      op.pad_if_needed = in.Bit();
      op.padding_mode = in.Mode();
      return op;
    }
    case 4:
      return HorizontalFlipSpec{};
    case 5:
      return VerticalFlipSpec{};
    case 6:
      return RandomHorizontalFlipSpec{.p = in.Real()};
    case 7:
      return RandomVerticalFlipSpec{.p = in.Real()};
    case 8:
      return AlternatingFlipSpec{};
    case 9:
    case 10: {
      ResizeSpec op;
      if (in.Bit()) {
        op.height = in.Number();
        op.width = in.Number();
      } else {
        op.shorter_edge = in.Number();
        op.max_size = in.Number();
      }
      op.interpolation = in.Interpolation();
      op.antialias = in.Bit();
      return op;
    }
    case 11: {
      ResizedCropSpec op;
      op.top = in.Number();
      op.left = in.Number();
      op.height = in.Number();
      op.width = in.Number();
      op.out_height = in.Number();
      op.out_width = in.Number();
      op.interpolation = in.Interpolation();
      op.antialias = in.Bit();
      return op;
    }
    case 12: {
      RandomResizedCropSpec op;
      op.height = in.Number();
      op.width = in.Number();
      if (in.Bit()) op.scale = in.Range();
      if (in.Bit()) op.ratio = in.Range();
      op.interpolation = in.Interpolation();
      op.antialias = in.Bit();
      return op;
    }
    case 13: {
      RotateSpec op;
      op.angle = in.Real();
      op.interpolation = in.Interpolation();
      op.expand = in.Bit();
      op.center = in.Point();
      if (in.Bit()) op.fill = in.Values<float>();
      return op;
    }
    case 14: {
      RandomRotationSpec op;
      op.degrees = in.Range();
      op.interpolation = in.Interpolation();
      op.center = in.Point();
      return op;
    }
    case 15: {
      AffineSpec op;
      op.angle = in.Real();
      op.translate.x = in.Real();
      op.translate.y = in.Real();
      op.scale = in.Real();
      op.shear.x = in.Real();
      op.shear.y = in.Real();
      op.interpolation = in.Interpolation();
      if (in.Bit()) op.fill = in.Values<float>();
      op.center = in.Point();
      return op;
    }
    case 16: {
      RandomAffineSpec op;
      op.degrees = in.Range();
      op.translate = in.Point();
      op.scale = in.MaybeRange();
      op.shear_x = in.MaybeRange();
      op.shear_y = in.MaybeRange();
      op.interpolation = in.Interpolation();
      op.center = in.Point();
      return op;
    }
    case 17: {
      ColorJitterSpec op;
      op.brightness = in.MaybeRange();
      op.contrast = in.MaybeRange();
      op.saturation = in.MaybeRange();
      op.hue = in.MaybeRange();
      return op;
    }
    case 18:
      return AdjustBrightnessSpec{.brightness_factor = in.Real()};
    case 19:
      return AdjustContrastSpec{.contrast_factor = in.Real()};
    case 20:
      return AdjustSaturationSpec{.saturation_factor = in.Real()};
    case 21:
      return AdjustHueSpec{.hue_factor = in.Real()};
    case 22:
      return GrayscaleSpec{.num_output_channels = in.Number()};
    case 23:
      return RandomGrayscaleSpec{.p = in.Real()};
    case 24:
      return InvertSpec{};
    case 25:
      return RandomInvertSpec{.p = in.Real()};
    case 26:
      return PosterizeSpec{.bits = in.Number()};
    case 27: {
      RandomPosterizeSpec op;
      op.bits = in.Number();
      op.p = in.Real();
      return op;
    }
    case 28:
      return SolarizeSpec{.threshold = in.Real()};
    case 29: {
      RandomSolarizeSpec op;
      op.threshold = in.Real();
      op.p = in.Real();
      return op;
    }
    case 30:
      return AdjustSharpnessSpec{.sharpness_factor = in.Real()};
    case 31:
      return AutocontrastSpec{};
    case 32:
      return RandomEqualizeSpec{.p = in.Real()};
    case 33: {
      GaussianBlurSpec op;
      op.kernel_height = in.Number();
      op.kernel_width = in.Number();
      op.sigma = in.Range();
      return op;
    }
    case 34: {
      EraseSpec op;
      op.top = in.Number();
      op.left = in.Number();
      op.height = in.Number();
      op.width = in.Number();
      op.value = in.Values<float>();
      return op;
    }
    case 35: {
      RandomErasingSpec op;
      op.p = in.Real();
      op.scale = in.Range();
      op.ratio = in.Range();
      op.is_value_random = in.Bit();
      return op;
    }
    case 36: {
      CutoutSpec op;
      op.size = in.Number();
      op.fill = in.Values<float>();
      return op;
    }
    case 37: {
      RandomApplySpec op;
      op.p = in.Real();
      const int most = in.Byte() % 4;
      if (depth < 2) op.transforms = ReadOps(in, most, depth + 1);
      return op;
    }
    case 38: {
      MixUpSpec op;
      op.alpha = in.Real();
      op.num_classes = in.Number();
      op.per_sample = in.Bit();
      return op;
    }
    case 39: {
      CutMixSpec op;
      op.alpha = in.Real();
      op.num_classes = in.Number();
      op.per_sample = in.Bit();
      return op;
    }
    case 40: {
      ToDtypeSpec op;
      op.dtype = in.AnyDtype();
      op.scale = in.Bit();
      return op;
    }
    default: {
      NormalizeSpec op;
      op.mean = in.Values<double>();
      op.std = in.Values<double>();
      return op;
    }
  }
}

}  // namespace

Pipeline ReadPipeline(absl::Span<const uint8_t> bytes) {
  Reader in(bytes);
  Pipeline pipeline;
  const uint8_t bits = in.Byte();
  pipeline.is_load = (bits & 1) != 0;
  pipeline.layout = (bits & 4) != 0 ? Layout::kNhwc : Layout::kNchw;
  constexpr Dtype kDtypes[] = {Dtype::kUint8, Dtype::kFloat16, Dtype::kBfloat16,
                               Dtype::kFloat32};
  FieldSpec& field = pipeline.field;
  field.name = "image";
  field.dtype = kDtypes[bits >> 3 & 3];
  field.is_image = true;
  field.is_mask = (bits & 2) != 0;
  const int64_t channels = 1 + in.Byte() % kMaxChannels;
  pipeline.batch_size = in.Number();
  const int kind = bits >> 5 & 3;
  if (kind == 1 && !pipeline.is_load) {
    field.shape = {kAnyExtent, kAnyExtent, channels};
    const int count = 1 + in.Byte() % 4;
    for (int i = 0; i < count; ++i) {
      const int64_t height = 1 + in.Byte() % 40;
      const ImageSize size = {height, 1 + in.Byte() % 40};
      if (std::find(pipeline.sizes.begin(), pipeline.sizes.end(), size) ==
          pipeline.sizes.end()) {
        pipeline.sizes.push_back(size);
      }
    }
  } else if (kind == 2) {
    pipeline.is_huge = true;
    const int64_t side = kHugeSides[in.Byte() % std::size(kHugeSides)];
    const uint8_t other = in.Byte();
    const int64_t short_side =
        std::clamp<int64_t>(kMaxHugeElements / side, 1, 1 + other % 5);
    field.shape = {
        side, short_side,
        std::clamp<int64_t>(kMaxHugeElements / side / short_side, 1, channels)};
    if (other >= 128) std::swap(field.shape[0], field.shape[1]);
  } else {
    const int64_t height = 1 + in.Byte() % 48;
    field.shape = {height, 1 + in.Byte() % 48, channels};
  }
  pipeline.ops = ReadOps(in, kMaxOps, 0);
  return pipeline;
}

}  // namespace datasetd
