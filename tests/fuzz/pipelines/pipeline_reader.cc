#include "tests/fuzz/pipelines/pipeline_reader.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "base/dtype.h"

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

// Long sides of huge images; the other side is short.
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
  uint32_t Unsigned() { return static_cast<uint32_t>(Number()); }
  int32_t Signed() { return static_cast<int32_t>(Number()); }

  void Range(v1::Range* range) {
    range->set_min(Real());
    range->set_max((Byte() & 3) == 0 ? Real() : range->min() + Byte() / 64.0);
  }
  void Point(v1::Point* point) {
    point->set_x(Real());
    point->set_y(Real());
  }
  void Size(v1::Size* size) {
    size->set_height(Unsigned());
    size->set_width(Unsigned());
  }
  void Sides(v1::Padding* padding) {
    padding->set_left(Unsigned());
    padding->set_top(Unsigned());
    padding->set_right(Unsigned());
    padding->set_bottom(Unsigned());
  }

  template <typename T>
  void Values(google::protobuf::RepeatedField<T>* values) {
    const int count = Byte() % 6;
    for (int i = 0; i < count; ++i) {
      const double real = Real();
      // A finite value that T cannot hold is sent as 1.
      values->Add(
          static_cast<T>(std::abs(real) <= std::numeric_limits<T>::max() ||
                                 !std::isfinite(real)
                             ? real
                             : 1.0));
    }
  }

  v1::InterpolationMode Interpolation() {
    return static_cast<v1::InterpolationMode>(1 + Byte() % 5);
  }
  v1::PaddingMode Mode() {
    return static_cast<v1::PaddingMode>(1 + Byte() % 5);
  }
  v1::Dtype AnyDtype() { return static_cast<v1::Dtype>(Byte() % 16); }

 private:
  absl::Span<const uint8_t> bytes_;
};

v1::Transform ReadOp(Reader& in, int depth);

Transforms ReadOps(Reader& in, int most, int depth) {
  Transforms ops;
  while (!in.is_empty() && static_cast<int>(ops.size()) < most) {
    ops.push_back(ReadOp(in, depth));
  }
  return ops;
}

// The order of evaluation is that of the statements.
void ReadInto(Reader& in, int depth, v1::Transform& to) {
  switch (in.Byte() % 47) {
    case 0: {
      auto& op = *to.mutable_pad();
      in.Sides(op.mutable_padding());
      op.set_padding_mode(in.Mode());
      if (in.Bit()) in.Values(op.mutable_fill());
      return;
    }
    case 1: {
      auto& op = *to.mutable_crop();
      op.set_top(in.Signed());
      op.set_left(in.Signed());
      op.set_height(in.Unsigned());
      op.set_width(in.Unsigned());
      return;
    }
    case 2: {
      auto& op = *to.mutable_center_crop();
      op.set_height(in.Unsigned());
      op.set_width(in.Unsigned());
      return;
    }
    case 3: {
      auto& op = *to.mutable_random_crop();
      op.set_height(in.Unsigned());
      op.set_width(in.Unsigned());
      if (in.Bit()) in.Sides(op.mutable_padding());
      op.set_pad_if_needed(in.Bit());
      op.set_padding_mode(in.Mode());
      return;
    }
    case 4:
      to.mutable_horizontal_flip();
      return;
    case 5:
      to.mutable_vertical_flip();
      return;
    case 6:
      to.mutable_random_horizontal_flip()->set_p(in.Real());
      return;
    case 7:
      to.mutable_random_vertical_flip()->set_p(in.Real());
      return;
    case 8:
      to.mutable_alternating_flip();
      return;
    case 9:
    case 10: {
      auto& op = *to.mutable_resize();
      if (in.Bit()) {
        op.mutable_size()->set_height(in.Unsigned());
        op.mutable_size()->set_width(in.Unsigned());
      } else {
        op.set_shorter_edge(in.Unsigned());
        op.set_max_size(in.Unsigned());
      }
      op.set_interpolation(in.Interpolation());
      op.set_antialias(in.Bit());
      return;
    }
    case 11: {
      auto& op = *to.mutable_resized_crop();
      op.set_top(in.Signed());
      op.set_left(in.Signed());
      op.set_height(in.Unsigned());
      op.set_width(in.Unsigned());
      op.mutable_size()->set_height(in.Unsigned());
      op.mutable_size()->set_width(in.Unsigned());
      op.set_interpolation(in.Interpolation());
      op.set_antialias(in.Bit());
      return;
    }
    case 12: {
      auto& op = *to.mutable_random_resized_crop();
      op.mutable_size()->set_height(in.Unsigned());
      op.mutable_size()->set_width(in.Unsigned());
      if (in.Bit()) in.Range(op.mutable_scale());
      if (in.Bit()) in.Range(op.mutable_ratio());
      op.set_interpolation(in.Interpolation());
      op.set_antialias(in.Bit());
      return;
    }
    case 13: {
      auto& op = *to.mutable_rotate();
      op.set_angle(in.Real());
      op.set_interpolation(in.Interpolation());
      op.set_expand(in.Bit());
      if (in.Bit()) in.Point(op.mutable_center());
      if (in.Bit()) in.Values(op.mutable_fill());
      return;
    }
    case 14: {
      auto& op = *to.mutable_random_rotation();
      in.Range(op.mutable_degrees());
      op.set_interpolation(in.Interpolation());
      if (in.Bit()) in.Point(op.mutable_center());
      return;
    }
    case 15: {
      auto& op = *to.mutable_affine();
      op.set_angle(in.Real());
      op.mutable_translate()->set_x(in.Real());
      op.mutable_translate()->set_y(in.Real());
      op.set_scale(in.Real());
      op.mutable_shear()->set_x(in.Real());
      op.mutable_shear()->set_y(in.Real());
      op.set_interpolation(in.Interpolation());
      if (in.Bit()) in.Values(op.mutable_fill());
      if (in.Bit()) in.Point(op.mutable_center());
      return;
    }
    case 16: {
      auto& op = *to.mutable_random_affine();
      in.Range(op.mutable_degrees());
      if (in.Bit()) in.Point(op.mutable_translate());
      if (in.Bit()) in.Range(op.mutable_scale());
      if (in.Bit()) in.Range(op.mutable_shear_x());
      if (in.Bit()) in.Range(op.mutable_shear_y());
      op.set_interpolation(in.Interpolation());
      if (in.Bit()) in.Point(op.mutable_center());
      return;
    }
    case 17: {
      auto& op = *to.mutable_color_jitter();
      if (in.Bit()) in.Range(op.mutable_brightness());
      if (in.Bit()) in.Range(op.mutable_contrast());
      if (in.Bit()) in.Range(op.mutable_saturation());
      if (in.Bit()) in.Range(op.mutable_hue());
      return;
    }
    case 18:
      to.mutable_adjust_brightness()->set_brightness_factor(in.Real());
      return;
    case 19:
      to.mutable_adjust_contrast()->set_contrast_factor(in.Real());
      return;
    case 20:
      to.mutable_adjust_saturation()->set_saturation_factor(in.Real());
      return;
    case 21:
      to.mutable_adjust_hue()->set_hue_factor(in.Real());
      return;
    case 22:
      to.mutable_grayscale()->set_num_output_channels(in.Unsigned());
      return;
    case 23:
      to.mutable_random_grayscale()->set_p(in.Real());
      return;
    case 24:
      to.mutable_invert();
      return;
    case 25:
      to.mutable_random_invert()->set_p(in.Real());
      return;
    case 26:
      to.mutable_posterize()->set_bits(in.Unsigned());
      return;
    case 27: {
      auto& op = *to.mutable_random_posterize();
      op.set_bits(in.Unsigned());
      op.set_p(in.Real());
      return;
    }
    case 28:
      to.mutable_solarize()->set_threshold(in.Real());
      return;
    case 29: {
      auto& op = *to.mutable_random_solarize();
      op.set_threshold(in.Real());
      op.set_p(in.Real());
      return;
    }
    case 30:
      to.mutable_adjust_sharpness()->set_sharpness_factor(in.Real());
      return;
    case 31:
      to.mutable_autocontrast();
      return;
    case 32:
      to.mutable_random_equalize()->set_p(in.Real());
      return;
    case 33: {
      auto& op = *to.mutable_gaussian_blur();
      op.mutable_kernel_size()->set_height(in.Unsigned());
      op.mutable_kernel_size()->set_width(in.Unsigned());
      in.Range(op.mutable_sigma());
      return;
    }
    case 34: {
      auto& op = *to.mutable_erase();
      op.set_top(in.Unsigned());
      op.set_left(in.Unsigned());
      op.set_height(in.Unsigned());
      op.set_width(in.Unsigned());
      in.Values(op.mutable_value());
      return;
    }
    case 35: {
      auto& op = *to.mutable_random_erasing();
      op.set_p(in.Real());
      in.Range(op.mutable_scale());
      in.Range(op.mutable_ratio());
      op.set_is_value_random(in.Bit());
      return;
    }
    case 36: {
      auto& op = *to.mutable_cutout();
      op.set_size(in.Unsigned());
      in.Values(op.mutable_fill());
      return;
    }
    case 37: {
      auto& op = *to.mutable_random_apply();
      op.set_p(in.Real());
      const int most = in.Byte() % 4;
      if (depth >= 2) return;
      for (const v1::Transform& inner : ReadOps(in, most, depth + 1)) {
        *op.add_transforms() = inner;
      }
      return;
    }
    case 38: {
      auto& op = *to.mutable_mix_up();
      op.set_alpha(in.Real());
      op.set_num_classes(in.Unsigned());
      op.set_per_sample(in.Bit());
      return;
    }
    case 39: {
      auto& op = *to.mutable_cut_mix();
      op.set_alpha(in.Real());
      op.set_num_classes(in.Unsigned());
      op.set_per_sample(in.Bit());
      return;
    }
    case 40: {
      auto& op = *to.mutable_to_dtype();
      op.set_dtype(in.AnyDtype());
      op.set_scale(in.Bit());
      return;
    }
    case 41: {
      auto& op = *to.mutable_normalize();
      in.Values(op.mutable_mean());
      in.Values(op.mutable_std());
      return;
    }
    case 42: {
      auto& op = *to.mutable_rand_augment();
      op.set_num_ops(in.Unsigned());
      op.set_magnitude(in.Unsigned());
      op.set_num_magnitude_bins(in.Unsigned());
      op.set_interpolation(in.Interpolation());
      if (in.Bit()) in.Values(op.mutable_fill());
      return;
    }
    case 43: {
      auto& op = *to.mutable_trivial_augment_wide();
      op.set_num_magnitude_bins(in.Unsigned());
      op.set_interpolation(in.Interpolation());
      if (in.Bit()) in.Values(op.mutable_fill());
      return;
    }
    case 44: {
      auto& op = *to.mutable_auto_augment();
      op.set_policy(static_cast<v1::AutoAugmentPolicy>(1 + in.Byte() % 4));
      op.set_interpolation(in.Interpolation());
      if (in.Bit()) in.Values(op.mutable_fill());
      return;
    }
    case 45: {
      auto& op = *to.mutable_random_perspective();
      op.set_distortion_scale(in.Real());
      op.set_p(in.Real());
      op.set_interpolation(in.Interpolation());
      if (in.Bit()) in.Values(op.mutable_fill());
      return;
    }
    default: {
      auto& op = *to.mutable_gaussian_noise();
      op.set_mean(in.Real());
      op.set_sigma(in.Real());
      op.set_clip(in.Bit());
      return;
    }
  }
}

v1::Transform ReadOp(Reader& in, int depth) {
  v1::Transform op;
  ReadInto(in, depth, op);
  FillDefaults(&op);
  return op;
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
  if ((bits & 0x80) != 0) {
    // As when fields share what the ops draw.
    for (v1::Transform& op : pipeline.ops) op.set_draw_id(1);
  }
  return pipeline;
}

}  // namespace datasetd
