// Writes images whose output rows are runs of input pixels, forwards or
// backwards, and padding.
//
// A thread writes 16 bytes of each channel. Its source bytes lie next to those
// of the neighbouring threads, so each thread of a warp loads one whole vector
// of the source, and the threads exchange what they loaded. Padding that
// repeats or mirrors pixels takes each pixel, by its number, from the same
// consecutive ones.

#ifndef DATASETD_CUDA_KERNELS_MOVES_PIXEL_RUNS_H_
#define DATASETD_CUDA_KERNELS_MOVES_PIXEL_RUNS_H_

#include <cstdint>
#include <type_traits>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/moves/block_state.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/bytes.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {

// Loads 4 * kWords bytes from `from` on. Only bytes `first` to `last` of them
// are defined, and only words that hold one of these are read.
template <int kWords>
DATASETD_HOST_DEVICE inline void LoadOwnRun(const uint8_t* from, int32_t first,
                                            int32_t last,
                                            uint32_t (&bytes)[kWords]) {
  const int offset = static_cast<int>(reinterpret_cast<uintptr_t>(from) & 3);
  const uint8_t* const aligned = from - offset;
  uint32_t word = 0;
  DATASETD_UNROLL
  for (int i = 0; i <= kWords; ++i) {
    uint32_t next = 0;
    if (4 * i + 3 >= first + offset && 4 * i <= last + offset) {
      next = LoadAs<uint32_t>(aligned, i);
    }
    if (i > 0) bytes[i - 1] = FunnelShift(word, next, 8 * offset);
    word = next;
  }
}

#if defined(__CUDACC__)

// Returns the thread that vector lane + 32 * i of a warp belongs to, if each
// thread has kVectors.
template <uint32_t kVectors>
__device__ inline uint32_t VectorOwner(uint32_t lane, uint32_t i) {
  if (32 % kVectors == 0) return lane / kVectors + 32 / kVectors * i;
  return (lane + 32 * i) / kVectors;
}

// Vectors that 4 * kWords bytes may lie in.
template <int kWords>
inline constexpr uint32_t kVectorsOf = (4 * kWords + 15 + 15) / 16;

// Neighbours keep 4 vectors in different orders, so that a quarter of a warp
// reads from all banks.
template <int kStride>
inline constexpr uint32_t kTurnsOf = kStride == 4 ? 4 : 1;

// Loads the vectors of 16 bytes that hold bytes `first` to `last` of 4 * kWords
// from `from` on. The threads of a warp load them for each other; all of them
// call it. `exchange` is the warp's and has kStride vectors for each thread,
// whose vector v is there at v ^ lane / 2 % kTurnsOf<kStride> afterwards.
template <bool kIsPadded, int kStride, int kWords>
__device__ inline void LoadVectorsTogether(const uint8_t* from, int32_t first,
                                           int32_t last, uint32_t lane,
                                           OutputVector* exchange) {
  constexpr uint32_t kVectors = kVectorsOf<kWords>;
  static_assert(kVectors <= uint32_t{kStride});
  constexpr uint32_t kTurns = kTurnsOf<kStride>;
  const auto address = reinterpret_cast<uint64_t>(from);
  const auto offset = static_cast<uint32_t>(address & 15);
  // The address of the thread's first vector and, in its low bits, the numbers
  // of the first and the last one that hold defined bytes. The others are not
  // read: their places get one of these.
  auto* const needed = reinterpret_cast<uint64_t*>(exchange);
  needed[lane] = address - offset +
                 (static_cast<uint32_t>(first) + offset) / 16 * 4 +
                 (static_cast<uint32_t>(last) + offset) / 16;
  __syncwarp();
  // The threads load the vectors of the warp in turn.
  uint64_t loaded[kVectors];
  DATASETD_UNROLL
  for (uint32_t i = 0; i < kVectors; ++i) {
    loaded[i] = needed[VectorOwner<kVectors>(lane, i)];
  }
  __syncwarp();
  auto* const vectors = reinterpret_cast<uint4*>(exchange);
  DATASETD_UNROLL
  for (uint32_t i = 0; i < kVectors; ++i) {
    const uint32_t owner = VectorOwner<kVectors>(lane, i);
    const uint32_t part =
        32 % kVectors == 0 ? lane % kVectors : lane + 32 * i - owner * kVectors;
    const auto range = static_cast<uint32_t>(loaded[i] & 15);
    uint32_t at = part < (range & 3) ? part : range & 3;
    if (kIsPadded && at < range >> 2) at = range >> 2;
    vectors[owner * kStride + (part ^ (owner / 2) % kTurns)] =
        __ldg(reinterpret_cast<const uint4*>(loaded[i] - range) + at);
  }
  __syncwarp();
}

// Takes the bytes from `offset` on of the thread's vectors.
template <int kStride, int kWords>
__device__ inline void TakeRun(const OutputVector* exchange, uint32_t lane,
                               uint32_t offset, uint32_t (&bytes)[kWords]) {
  constexpr uint32_t kVectors = kVectorsOf<kWords>;
  constexpr uint32_t kTurns = kTurnsOf<kStride>;
  const auto* const vectors = reinterpret_cast<const uint4*>(exchange);
  if constexpr (kTurns == 1) {
    const auto* const words =
        reinterpret_cast<const uint32_t*>(vectors + lane * kStride) +
        offset / 4;
    DATASETD_UNROLL
    for (int i = 0; i < kWords; ++i) {
      bytes[i] =
          FunnelShift(words[i], words[i + 1], static_cast<int>(offset % 4 * 8));
    }
  } else {
    uint32_t words[4 * kVectors];
    DATASETD_UNROLL
    for (uint32_t v = 0; v < kVectors; ++v) {
      const uint4 vector = vectors[lane * kStride + (v ^ lane / 2 % kTurns)];
      words[4 * v] = vector.x;
      words[4 * v + 1] = vector.y;
      words[4 * v + 2] = vector.z;
      words[4 * v + 3] = vector.w;
    }
    ShiftBytes<kWords>(words, static_cast<int>(offset));
    DATASETD_UNROLL
    for (int i = 0; i < kWords; ++i) bytes[i] = words[i];
  }
}

#endif  // defined(__CUDACC__)

// The pixels of a vector whose padding is pixels of the run: PaddingMode kEdge,
// kReflect or kSymmetric.
class FoldedPixels {
 public:
  FoldedPixels() = default;
  // The vector's first pixel is output column x.
  DATASETD_HOST_DEVICE FoldedPixels(const ColumnSpan& run, PaddingMode mode,
                                    int32_t x)
      : x_(x), step_(run.step) {
    const bool is_edge = mode == PaddingMode::kEdge;
    const int32_t beside = mode == PaddingMode::kSymmetric ? 1 : 0;
    const int32_t last = run.end - 1;
    sign_ = is_edge ? 0 : -1;
    low_ = (is_edge ? run.begin : 2 * run.begin - beside) + sign_ * x;
    high_ = is_edge ? last : 2 * last + beside;
  }

  // Finds the input columns from *first on that hold the pixels of a vector of
  // `count`, and takes *first as the place of pixel number 0. Returns how many
  // these are: at most `count`. The ends of the vector are the ends of what it
  // holds, unless the run begins or ends between them.
  DATASETD_HOST_DEVICE int32_t SetPlaces(const ColumnSpan& run, int32_t count,
                                         int32_t* first) {
    const int32_t last = run.end - 1;
    const int32_t end = x_ + count - 1;
    const int32_t a = Column(0);
    const int32_t b = Column(count - 1);
    const int32_t least = x_ <= run.begin && run.begin <= end ? run.begin
                          : a < b                             ? a
                                                              : b;
    const int32_t most = x_ <= last && last <= end ? last : a > b ? a : b;
    *first = run.origin + step_ * (step_ < 0 ? most : least);
    place_ = run.origin - *first;
    return most - least + 1;
  }

  // Returns the number of the loaded pixel that pixel k is.
  DATASETD_HOST_DEVICE int32_t Place(int k) const {
    return place_ + step_ * Column(k);
  }

 private:
  // Returns the column of the run that pixel k shows. A column and its mirror
  // image add up to low or high, so that the inner one of both is it. Padding
  // is not longer than what it mirrors.
  DATASETD_HOST_DEVICE int32_t Column(int k) const {
    const int32_t x = x_ + k;
    const int32_t mirrored = low_ + sign_ * k;
    const int32_t right = x > mirrored ? x : mirrored;
    const int32_t back = high_ + sign_ * right;
    return right < back ? right : back;
  }

  int32_t x_, step_, place_;
  int32_t low_;  // without the part of k
  int32_t high_, sign_;
};

// Takes pixels out of the bytes from `offset` on in `words`, of which word i is
// words[i ^ turn]. kHasNext: a word follows that of the last pixel's first
// byte.
template <int kChannels, bool kHasNext, int kWords>
DATASETD_HOST_DEVICE inline void PickPixels(const uint32_t* words,
                                            uint32_t turn, uint32_t offset,
                                            const FoldedPixels& pixels,
                                            uint32_t (&bytes)[kWords]) {
  // Returns the channels as the low bytes of a word.
  const auto pick = [&](int k) {
    const uint32_t byte =
        offset + static_cast<uint32_t>(pixels.Place(k) * kChannels);
    const int shift = static_cast<int>(byte % 4 * 8);
    const uint32_t* const at = words + (kWords == 1 ? 0 : byte / 4 ^ turn);
    if constexpr (kChannels == 1) return *at >> shift;
    const uint32_t next =
        kHasNext ? at[1] : words[(byte + kChannels - 1) / 4 ^ turn];
    return FunnelShift(*at, next, shift);
  };
  DATASETD_UNROLL
  for (int w = 0; w < kWords; w += kChannels) {
    uint32_t four[4];
    DATASETD_UNROLL
    for (int i = 0; i < 4; ++i) four[i] = pick(w / kChannels * 4 + i);
    if constexpr (kChannels == 1) {
      bytes[w] = PermuteBytes(PermuteBytes(four[0], four[1], 0x0040),
                              PermuteBytes(four[2], four[3], 0x0040), 0x5410);
    } else {
      static_assert(kChannels == 3);
      bytes[w] = PermuteBytes(four[0], four[1], 0x4210);
      bytes[w + 1] = PermuteBytes(four[1], four[2], 0x5421);
      bytes[w + 2] = PermuteBytes(four[2], four[3], 0x6542);
    }
  }
}

// As LoadOwnRun. All threads of a warp call it: a CUDA thread has its vectors
// loaded by others. If `folds`, `bytes` are then the pixels in their places.
template <bool kIsPadded, int kStride, int kChannels, int kWords>
DATASETD_HOST_DEVICE inline void LoadRun(const uint8_t* from, int32_t first,
                                         int32_t last, int lane,
                                         OutputVector* exchange, bool folds,
                                         const FoldedPixels& pixels,
                                         uint32_t (&bytes)[kWords]) {
#if defined(__CUDA_ARCH__)
  if constexpr (kWords > 1) {
    const auto thread = static_cast<uint32_t>(lane);
    LoadVectorsTogether<kIsPadded, kStride, kWords>(from, first, last, thread,
                                                    exchange);
    const auto offset =
        static_cast<uint32_t>(reinterpret_cast<uint64_t>(from) & 15);
    if (kIsPadded && folds) {
      // The word behind the last of 4 vectors is another thread's.
      PickPixels<kChannels, kStride != 4>(
          reinterpret_cast<const uint32_t*>(exchange + thread * kStride),
          thread / 2 % kTurnsOf<kStride> * 4, offset, pixels, bytes);
    } else {
      TakeRun<kStride>(exchange, thread, offset, bytes);
    }
    __syncwarp();
    return;
  }
#endif
  LoadOwnRun(from, first, last, bytes);
  if (kIsPadded && folds) {
    uint32_t words[kWords];
    DATASETD_UNROLL
    for (int i = 0; i < kWords; ++i) words[i] = bytes[i];
    PickPixels<kChannels, false>(words, 0, 0, pixels, bytes);
  }
}

// Returns a pixel's channels as the low bytes of a word; what is above is
// undefined.
template <int kChannels, int kWords>
DATASETD_HOST_DEVICE inline uint32_t PixelBytes(const uint32_t (&bytes)[kWords],
                                                int pixel) {
  const int word = pixel * kChannels / 4;
  const int shift = pixel * kChannels % 4 * 8;
  if (shift + 8 * kChannels <= 32) return bytes[word] >> shift;
  return FunnelShift(bytes[word], bytes[word + 1], shift);
}

// The pixels of a thread that are not padding: `begin` + pixel, an unsigned
// number, is below `count`.
struct InsideRange {
  uint32_t begin;
  uint32_t count;
  DATASETD_HOST_DEVICE bool Has(int pixel) const {
    return begin + static_cast<uint32_t>(pixel) < count;
  }
};

// Returns the pixel and the channel of element `i` of a thread's vector `v`.
template <bool kIsNhwc, int kChannels, int kVector>
struct ElementOrder {
  static constexpr int Pixel(int v, int i) {
    return kIsNhwc ? (v * kVector + i) / kChannels : i;
  }
  static constexpr int Channel(int v, int i) {
    return kIsNhwc ? (v * kVector + i) % kChannels : v;
  }
};

// Copies bytes to output vectors.
template <bool kIsPadded, typename Order, int kChannels>
DATASETD_HOST_DEVICE inline void CopyPixels(
    const uint32_t (&bytes)[4 * kChannels], bool is_mirrored,
    const InsideRange& inside, const uint32_t (&fill)[kChannels],
    uint32_t (&words)[kChannels][4]) {
  // A byte for each pixel: 0xFF if it is inside.
  uint32_t masks[4] = {};
  if constexpr (kIsPadded) {
    DATASETD_UNROLL
    for (int k = 0; k < 16; ++k) {
      if (inside.Has(k)) masks[k / 4] |= 0xFFu << k % 4 * 8;
    }
  }
  DATASETD_UNROLL
  for (int v = 0; v < kChannels; ++v) {
    DATASETD_UNROLL
    for (int w = 0; w < 4; ++w) {
      int ahead[4];
      int back[4];
      int pixel[4];
      uint32_t padding = 0;
      DATASETD_UNROLL
      for (int i = 0; i < 4; ++i) {
        pixel[i] = Order::Pixel(v, 4 * w + i);
        const int channel = Order::Channel(v, 4 * w + i);
        ahead[i] = pixel[i] * kChannels + channel;
        back[i] = (15 - pixel[i]) * kChannels + channel;
        if constexpr (kIsPadded) padding |= fill[channel] << 8 * i;
      }
      uint32_t word =
          is_mirrored ? GatherBytes(bytes, back) : GatherBytes(bytes, ahead);
      if constexpr (kIsPadded) {
        const uint32_t mask = GatherBytes(masks, pixel);
        word = (word & mask) | (padding & ~mask);
      }
      words[v][w] = word;
    }
  }
}

// Converts bytes to output vectors, by the table.
template <bool kIsPadded, typename Order, int kSizeBytes, int kWords,
          int kChannels>
DATASETD_HOST_DEVICE inline void ConvertPixels(
    const uint32_t (&bytes)[kWords], bool is_mirrored,
    const InsideRange& inside, const uint32_t (&fill)[kChannels],
    const uint32_t (&table)[kMaxChannels][256],
    uint32_t (&words)[kChannels][4]) {
  constexpr int kVector = VectorPositions(kSizeBytes);
  uint32_t pixels[kVector];
  DATASETD_UNROLL
  for (int k = 0; k < kVector; ++k) {
    const uint32_t ahead = PixelBytes<kChannels>(bytes, k);
    const uint32_t back = PixelBytes<kChannels>(bytes, kVector - 1 - k);
    pixels[k] = is_mirrored ? back : ahead;
  }
  DATASETD_UNROLL
  for (int v = 0; v < kChannels; ++v) {
    DATASETD_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const int channel = Order::Channel(v, i);
      const int pixel = Order::Pixel(v, i);
      uint32_t bits = table[channel][pixels[pixel] >> (8 * channel) & 0xFF];
      if (kIsPadded && !inside.Has(pixel)) bits = fill[channel];
      PackElement<kSizeBytes>(words[v], i, bits);
    }
  }
}

// Writes vectors of all channels of as many consecutive pixels of a row.
// `is_nhwc`, the layout, is a bool or a constant. REQUIRES: the plan has runs;
// it pads only if kIsPadded.
template <bool kIsPadded, int kChannels, int kSizeBytes, typename Bool,
          typename Sink>
DATASETD_HOST_DEVICE inline void WriteRuns(const AugmentPlan& plan, int thread,
                                           BlockState& state, Bool is_nhwc,
                                           const Sink& sink) {
  constexpr int kVector = VectorPositions(kSizeBytes);
  constexpr int kStride =
      kSizeBytes == 1 ? kExchangeVectors : kExchangeVectors - 1;
  const BlockWork& work = state.work;
  const FieldPlan& field_plan = plan.fields[work.plan_index];
  const MoveProgram& field = state.field;
  uint8_t* slot = plan.batches[work.batch_index].slot + field.offset_bytes;
  const int32_t pixel_positions = is_nhwc ? kChannels : 1;
  const int32_t unit = kVector * pixel_positions;
  const int32_t row_positions = field.out_width * pixel_positions;
  const int32_t sample_positions = field_plan.positions_per_sample;
  const int32_t row_bytes = field.in_width * kChannels;
  const int padding_move = field_plan.padding_move;
  const bool folds = kIsPadded && PadsWithPixels(field, padding_move);
  uint32_t fill[kChannels] = {};
  if (kIsPadded && padding_move >= 0) {
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      fill[c] = state.fill_bits[padding_move][c];
    }
  }
  // All threads of a warp take each turn. A thread behind the end repeats the
  // work of the last one, and stores nothing.
  const int lane = thread & 31;
  OutputVector* const exchange = state.exchange + (thread - lane) * kStride;
  const int32_t end = work.num_positions - unit;
  for (int32_t i = thread * unit; i - lane * unit <= end;
       i += kBlockThreads * unit) {
    const int32_t position = work.first_position + (i > end ? end : i);
    const int32_t row = static_cast<int32_t>(
        field_plan.row_divider.Divide(static_cast<uint32_t>(position)));
    const int32_t in_row = position - row * row_positions;
    const int32_t x = is_nhwc ? in_row / kChannels : in_row;
    const BlockRow block_row = state.rows[row - work.first_row];
    const ColumnSpan run = state.runs[block_row.sample];
    const bool is_row = !IsFill(block_row.entry);
    bool is_mirrored = run.step < 0;
    const uint8_t* const source =
        state.sources[block_row.sample] + (is_row ? block_row.entry : 0);
    InsideRange inside = {0, kVector};
    constexpr int kLast = kVector * kChannels - 1;
    int32_t from;
    int32_t first = 0;
    int32_t last = kLast;
    FoldedPixels folded;
    if (folds) {
      folded = FoldedPixels(run, field.moves[padding_move].padding_mode, x);
      last = folded.SetPlaces(run, kVector, &from) * kChannels - 1;
      from *= kChannels;
      is_mirrored = false;
    } else {
      inside = {static_cast<uint32_t>(x - run.begin),
                is_row ? static_cast<uint32_t>(run.end - run.begin) : 0};
      // The leftmost byte in the input row. A mirrored run ends there.
      from = (is_mirrored ? run.origin - (x + kVector - 1)
                          : run.origin + run.step * x) *
             kChannels;
      if constexpr (kIsPadded) {
        first = from < 0 ? -from : 0;
        last = row_bytes - from <= kLast ? row_bytes - from - 1 : kLast;
        if (first > last) from = first = last = 0;
      }
    }
    uint32_t bytes[kVector * kChannels / 4];
    LoadRun<kIsPadded, kStride, kChannels>(source + from, first, last, lane,
                                           exchange, folds, folded, bytes);
    uint32_t words[kChannels][4] = {};
    const auto make_words = [&]<typename Order>(Order) {
      if constexpr (kSizeBytes == 1) {
        CopyPixels<kIsPadded, Order>(bytes, is_mirrored, inside, fill, words);
      } else {
        ConvertPixels<kIsPadded, Order, kSizeBytes>(
            bytes, is_mirrored, inside, fill, state.map.table, words);
      }
    };
    if (is_nhwc) {
      if constexpr (kChannels == kStoredVectors) {
        make_words(ElementOrder<true, kChannels, kVector>());
        uint8_t* const to =
            slot + (int64_t{work.first_sample} * sample_positions +
                    work.first_position + i) *
                       kSizeBytes;
        const int32_t left = (end - i) / (kVector * kChannels) + 1 + lane;
        sink.StoreConsecutive(to, words, lane, left < 32 ? left : 32, exchange);
      }
    } else {
      make_words(ElementOrder<false, kChannels, kVector>());
      const int32_t sample = block_row.sample;
      uint8_t* to = slot + ((int64_t{work.first_sample} + sample) * kChannels *
                                sample_positions +
                            (position - sample * sample_positions)) *
                               kSizeBytes;
      if (i <= end) {
        DATASETD_UNROLL
        for (int c = 0; c < kChannels; ++c) {
          sink.StoreVector(to, words[c]);
          to += int64_t{sample_positions} * kSizeBytes;
        }
      }
    }
  }
}

template <int kSizeBytes, typename Sink>
DATASETD_HOST_DEVICE inline void WriteRunImage(const AugmentPlan& plan,
                                               int thread, BlockState& state,
                                               const Sink& sink) {
  const bool is_nhwc = state.field.layout == Layout::kNhwc;
  if (state.field.channels == 1) {
    // The layouts are the same, and padding costs a grey image little.
    WriteRuns<true, 1, kSizeBytes>(plan, thread, state, std::false_type(),
                                   sink);
  } else if (plan.fields[state.work.plan_index].padding_move >= 0) {
    WriteRuns<true, 3, kSizeBytes>(plan, thread, state, is_nhwc, sink);
  } else if constexpr (kSizeBytes < 4) {
    WriteRuns<false, 3, kSizeBytes>(plan, thread, state, is_nhwc, sink);
  } else if (is_nhwc) {
    // Both layouts in one loop take an eighth more instructions.
    WriteRuns<false, 3, kSizeBytes>(plan, thread, state, std::true_type(),
                                    sink);
  } else {
    WriteRuns<false, 3, kSizeBytes>(plan, thread, state, std::false_type(),
                                    sink);
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MOVES_PIXEL_RUNS_H_
