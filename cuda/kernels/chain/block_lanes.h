// Loads and stores of a CUDA thread's lanes, which are neighbouring pixels of a
// row: by vectors of four elements where memory is aligned. Lanes beyond the
// row repeat its last pixel, or are undefined, and are not stored.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_BLOCK_LANES_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_BLOCK_LANES_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_BLOCK_LANES_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_BLOCK_LANES_H_
#endif

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/program/bytes.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// Four elements of 4 bytes, accessed at once. Aligned to 16 bytes.
template <typename T>
struct alignas(16) Vector4 {
  T at[4];
};

// Sets all channels to 0. The compiler may compute with channels that an image
// lacks before it asks for their number.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void ClearLanes(Lanes<Team>* lanes) {
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) lanes->pixel[c][k] = 0.0f;
  }
}

// Copies lanes first_c .. first_c + kChannels of `made` to the lanes.
template <int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void SetLanes(
    const float (&made)[kChannels][Team::kLanes], int first_c,
    Lanes<Team>* lanes) {
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) {
    DATASETD_UNROLL
    for (int c = 0; c < kMaxChannels; ++c) {
      if (kChannels == 1) {
        if (c == first_c) lanes->pixel[c][k] = made[0][k];
      } else {
        lanes->pixel[c][k] =
            c < kChannels ? made[c < kChannels ? c : 0][k] : 0.0f;
      }
    }
  }
}

// Calls make(made, c) for channels c .. c + n of the lanes, made a float[n]
// [kLanes] that it fills: for three at once, which share what they look up, or
// one by one.
template <typename Team, typename Make>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void MakeChannels(Lanes<Team>* lanes,
                                                             const Make& make) {
  if (lanes->channels == 3) {
    float made[3][Team::kLanes];
    make(made, 0);
    SetLanes(made, 0, lanes);
    return;
  }
  ClearLanes(lanes);
  for (int32_t c = 0; c < lanes->channels; ++c) {
    float made[1][Team::kLanes];
    make(made, c);
    SetLanes(made, c, lanes);
  }
}

// Where the lanes of a row are: `count` of them, `step` elements apart.
// `is_vector`: they are four neighbours, aligned to all.
struct LaneRun {
  int count;
  int32_t step;
  bool is_vector;
};

// Returns the number of lanes x, x + step, ... below `width`, at most all.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE int CountOfQuarters(int32_t x,
                                                               int32_t step,
                                                               int32_t width) {
  int count = 1;
  DATASETD_UNROLL
  for (int k = 1; k < Team::kLanes; ++k) count += x + k * step < width ? 1 : 0;
  return count;
}

// Loads lanes of 4 bytes from `from` on.
template <typename Team, typename T>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void LoadLanes(
    const T* from, const LaneRun& run, T (&to)[Team::kLanes]) {
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) {
    to[k] = from[k < run.count ? k * run.step : 0];
  }
}

// Loads lanes that are neighbours from `from` on in scratch memory, where up to
// three floats behind a row may be read, too. `is_vector`: as in LaneRun.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void LoadNeighbours(
    const float* from, bool is_vector, float (&to)[Team::kLanes]) {
  if (is_vector) {
    const auto all = *reinterpret_cast<const Vector4<float>*>(from);
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) to[k] = all.at[k];
    return;
  }
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) to[k] = from[k];
}

// Stores lanes from `to` on.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void StoreFloats(
    const float (&lanes)[Team::kLanes], const LaneRun& run, float* to) {
  if (run.is_vector) {
    Vector4<float> all;
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) all.at[k] = lanes[k];
    *reinterpret_cast<Vector4<float>*>(to) = all;
    return;
  }
  const auto step = static_cast<int64_t>(run.step);
  if (run.count == Team::kLanes) {
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      *to = lanes[k];
      to += step;
    }
    return;
  }
  DATASETD_UNROLL
  for (int k = 0; k + 1 < Team::kLanes; ++k) {
    if (k < run.count) to[k * step] = lanes[k];
  }
}

// Returns element `index` of an image of any dtype as float32.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_NOINLINE float LoadElementOf(Dtype dtype,
                                                           const uint8_t* data,
                                                           int64_t index) {
  switch (dtype) {
    case Dtype::kUint8:
      return LoadElement<Dtype::kUint8>(data, index);
    case Dtype::kFloat16:
      return LoadElement<Dtype::kFloat16>(data, index);
    case Dtype::kBfloat16:
      return LoadElement<Dtype::kBfloat16>(data, index);
    default:
      return LoadElement<Dtype::kFloat32>(data, index);
  }
}

// The channels of a pixel; 0 for those that it lacks.
template <typename Team>
struct PixelValues {
  float channel[kMaxChannels];
};

// Loads the pixel whose first channel is element `at`, of any dtype.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_NOINLINE PixelValues<Team> LoadPixelOf(
    const ChainImage& image, int64_t at) {
  PixelValues<Team> pixel = {};
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= image.channels) continue;
    pixel.channel[c] = LoadElementOf<Team>(image.dtype, image.data, at + c);
  }
  return pixel;
}

// How the elements of an image are loaded: three interleaved bytes, planar
// float32, or whatever its dtype and strides are.
enum class ElementKind : uint8_t { kRgbBytes, kPlanes, kAny };

DATASETD_HOST_DEVICE inline ElementKind KindOf(const ChainImage& image) {
  if (image.is_scratch) return ElementKind::kPlanes;
  return image.dtype == Dtype::kUint8 && image.channels == 3
             ? ElementKind::kRgbBytes
             : ElementKind::kAny;
}

// The bytes of a thread's pixels of three channels.
template <typename Team>
struct RgbBytes {
  uint32_t word[3 * Team::kLanes / 4];
};

// Loads the first `count` pixels from `from` on byte by byte.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_NOINLINE RgbBytes<Team> LoadLastRgb(
    const uint8_t* from, int count) {
  RgbBytes<Team> bytes = {};
  DATASETD_UNROLL
  for (int i = 0; i < 3 * Team::kLanes; ++i) {
    if (i >= 3 * count) break;
    bytes.word[i / 4] |= uint32_t{LoadAs<uint8_t>(from, i)} << (8 * (i % 4));
  }
  return bytes;
}

// Loads four neighbouring pixels of three bytes from byte `at` of an image on,
// of which the first `count` are inside.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void LoadRgbLanes(
    const ChainImage& image, int32_t at, int count,
    float (&to)[3][Team::kLanes]) {
  constexpr int kBytes = 3 * Team::kLanes;
  RgbBytes<Team> bytes = {};
  // Up to three bytes behind are read, too.
  if (at + kBytes + 3 <= image.height * image.row_stride) {
    LoadBytes(image.data + at, bytes.word);
  } else {
    bytes = LoadLastRgb<Team>(image.data + at, count);
  }
  DATASETD_UNROLL
  for (int i = 0; i < kBytes; ++i) {
    to[i % 3][i / 3] = ByteOf(bytes.word[i / 4], i % 4);
  }
}

// Loads the lanes of row `row` from their own columns. REQUIRES: not kAny.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void GatherNeighbours(
    const ChainImage& image, ElementKind kind, int32_t row,
    Lanes<Team>* lanes) {
  const int32_t start = row * image.row_stride;
  if (kind == ElementKind::kRgbBytes) {
    float made[3][Team::kLanes];
    LoadRgbLanes<Team>(image, start + 3 * lanes->first_x, lanes->count, made);
    SetLanes(made, 0, lanes);
    return;
  }
  const bool is_vector = image.width % Team::kLanes == 0;
  const float* const from =
      reinterpret_cast<const float*>(image.data) + start + lanes->first_x;
  MakeChannels(lanes, [&](auto& made, int first_c) {
    DATASETD_UNROLL
    for (auto& channel : made) {
      LoadNeighbours<Team>(from + first_c++ * image.channel_stride, is_vector,
                           channel);
    }
  });
}

// Loads the lanes of row `row`, which is an image row or fill, from the columns
// that `map_x` has for them; null: from their own.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void GatherMoved(
    const ChainImage& image, ElementKind kind, int32_t row,
    const int32_t* map_x, Lanes<Team>* lanes) {
  if (IsFill(row)) row = 0;
  const int count = lanes->count;
  const int32_t start = row * image.row_stride;
  const bool is_rgb = kind == ElementKind::kRgbBytes;
  int32_t column[Team::kLanes];
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) {
    const int32_t x = lanes->first_x + (k < count ? k : count - 1);
    column[k] = map_x == nullptr ? x : map_x[x];
  }
  bool is_run = !IsFill(column[0]);
  bool is_mirrored_run = !IsFill(column[Team::kLanes - 1]);
  DATASETD_UNROLL
  for (int k = 1; k < Team::kLanes; ++k) {
    is_run = is_run && column[k] == column[0] + k;
    is_mirrored_run = is_mirrored_run && column[k] == column[0] - k;
  }
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) {
    column[k] = IsFill(column[k]) ? 0 : column[k];
  }
  if (is_rgb && (is_run || is_mirrored_run)) {
    float made[3][Team::kLanes];
    LoadRgbLanes<Team>(
        image, start + 3 * (is_run ? column[0] : column[Team::kLanes - 1]),
        Team::kLanes, made);
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      DATASETD_UNROLL
      for (int c = 0; c < 3; ++c) {
        lanes->pixel[c][k] =
            is_run ? made[c][k] : made[c][Team::kLanes - 1 - k];
      }
      lanes->pixel[3][k] = 0.0f;
    }
    return;
  }
  if (kind == ElementKind::kAny && image.dtype != Dtype::kUint8) {
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      const PixelValues<Team> pixel =
          LoadPixelOf<Team>(image, start + column[k] * image.pixel_stride);
      DATASETD_UNROLL
      for (int c = 0; c < kMaxChannels; ++c) {
        lanes->pixel[c][k] = pixel.channel[c];
      }
    }
    return;
  }
  ClearLanes(lanes);
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    if (kind == ElementKind::kPlanes) {
      const float* const from = reinterpret_cast<const float*>(image.data) +
                                c * image.channel_stride + start;
      DATASETD_UNROLL
      for (int k = 0; k < Team::kLanes; ++k) {
        lanes->pixel[c][k] = from[column[k]];
      }
      continue;
    }
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      const int32_t at = start + column[k] * image.pixel_stride + c;
      lanes->pixel[c][k] = LoadElement<Dtype::kUint8>(image.data, at);
    }
  }
}

// Packs `bits` of four elements of kSizeBytes bytes and stores them at `to`,
// which is aligned to all.
template <int kSizeBytes>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void StorePacked(
    const uint32_t (&bits)[4], uint8_t* to) {
  if constexpr (kSizeBytes == 4) {
    *reinterpret_cast<Vector4<uint32_t>*>(to) = {
        {bits[0], bits[1], bits[2], bits[3]}};
  } else if constexpr (kSizeBytes == 2) {
    struct alignas(8) Words {
      uint32_t at[2];
    };
    *reinterpret_cast<Words*>(to) = {
        {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16}};
  } else {
    *reinterpret_cast<uint32_t*>(to) =
        bits[0] | bits[1] << 8 | bits[2] << 16 | bits[3] << 24;
  }
}

// Stores lanes of kSizeBytes bytes an element at `to`. Channels are
// `channel_stride` elements apart, pixels in NHWC `channels` and else 1.
template <int kSizeBytes, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void StoreBits(
    const uint32_t (&bits)[kMaxChannels][Team::kLanes], int channels,
    int64_t channel_stride, bool is_nhwc, const LaneRun& run, uint8_t* to) {
  if (run.is_vector && (!is_nhwc || channels == 3)) {
    DATASETD_UNROLL
    for (int v = 0; v < kMaxChannels; ++v) {
      if (v >= channels) continue;
      uint32_t four[4];
      DATASETD_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int element = 4 * v + i;
        four[i] =
            is_nhwc && v < 3 ? bits[element % 3][element / 3 % 4] : bits[v][i];
      }
      StorePacked<kSizeBytes>(
          four, to + (is_nhwc ? 4 * v : v * channel_stride) * kSizeBytes);
    }
    return;
  }
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= channels) continue;
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      if (k >= run.count) continue;
      const int32_t at = k * run.step * (is_nhwc ? channels : 1);
      datasetd::StoreBits(to, kSizeBytes, c * channel_stride + at, bits[c][k]);
    }
  }
}

// Where and how a pass stores its pixels.
struct BlockOutput {
  uint8_t* to;
  int64_t plane;  // pixels of an image
  int32_t width;
  int32_t element_bytes;
  Dtype dtype;
  bool is_rounded;  // else float32 as it is
  bool is_nhwc;
  bool has_vectors;  // lanes that are neighbours are aligned
};

// Rounds lanes to the output's dtype and stores them.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void StoreBlock(
    const Lanes<Team>& lanes, const BlockOutput& out) {
  const int32_t channels = lanes.channels;
  const LaneRun run = {lanes.count, lanes.step,
                       out.has_vectors && lanes.step == 1};
  const int64_t at = int64_t{lanes.y} * out.width + lanes.first_x;
  const int64_t channel_stride = out.is_nhwc ? 1 : out.plane;
  uint8_t* const to =
      out.to + at * ((out.is_nhwc ? channels : 1) * out.element_bytes);
  if (out.dtype == Dtype::kFloat32 && !out.is_nhwc) {
    DATASETD_UNROLL
    for (int c = 0; c < kMaxChannels; ++c) {
      if (c >= channels) continue;
      float* const plane = reinterpret_cast<float*>(to) + c * channel_stride;
      float value[Team::kLanes];
      if (out.is_rounded) {
        DATASETD_UNROLL
        for (int k = 0; k < Team::kLanes; ++k) {
          value[k] = CanonicalFloat(lanes.pixel[c][k]);
        }
        StoreFloats<Team>(value, run, plane);
      } else {
        StoreFloats<Team>(lanes.pixel[c], run, plane);
      }
    }
    return;
  }
  uint32_t bits[kMaxChannels][Team::kLanes] = {};
  const auto round = [&](auto round_one) {
    DATASETD_UNROLL
    for (int c = 0; c < kMaxChannels; ++c) {
      if (c >= channels) continue;
      DATASETD_UNROLL
      for (int k = 0; k < Team::kLanes; ++k) {
        bits[c][k] = round_one(lanes.pixel[c][k]);
      }
    }
  };
  switch (out.dtype) {
    case Dtype::kUint8:
      round([](float x) { return uint32_t{FloatToUint8(x)}; });
      StoreBits<1, Team>(bits, channels, channel_stride, out.is_nhwc, run, to);
      return;
    case Dtype::kFloat16:
      round([](float x) { return uint32_t{FloatToFloat16(x)}; });
      break;
    case Dtype::kBfloat16:
      round([](float x) { return uint32_t{FloatToBfloat16(x)}; });
      break;
    default:
      round([](float x) { return FloatBits(CanonicalFloat(x)); });
      StoreBits<4, Team>(bits, channels, channel_stride, out.is_nhwc, run, to);
      return;
  }
  StoreBits<2, Team>(bits, channels, channel_stride, out.is_nhwc, run, to);
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_BLOCK_LANES_H_
