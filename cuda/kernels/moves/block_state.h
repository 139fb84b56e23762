// The shared memory of a block of AugmentKernel, and how its threads store.

#ifndef DATASETD_CUDA_KERNELS_MOVES_BLOCK_STATE_H_
#define DATASETD_CUDA_KERNELS_MOVES_BLOCK_STATE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/bytes.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {

// Range of positions of a block.
struct BlockWork {
  int32_t batch_index;
  int32_t plan_index;      // in AugmentPlan::fields
  int32_t first_sample;    // in the batch
  int32_t first_position;  // in that sample
  int32_t num_positions;
  int32_t num_samples;  // that the range touches
  int32_t first_row;    // of images: the row of first_position
  int32_t num_rows;     // counted across samples
  bool is_image;        // else there is nothing to load, draw and map
};

// An output row of a block.
struct BlockRow {
  int32_t entry;   // element offset of the input row, or fill
  int32_t sample;  // in the block
};

// Output columns [begin, end) of a sample come from input column `origin` +
// `step` * x; all others are padding, or columns of these again.
struct ColumnSpan {
  int32_t origin, step;
  int32_t begin, end;
};

// How a block finds the pixels of its samples.
struct BlockMap {
  SampleMoves moves[kMaxBlockSamples];
  // Element offset in an input row, or fill: [sample][out_width].
  int32_t columns[kMaxBlockColumns];
  // For uint8 images: output bits of each byte value.
  alignas(16) uint32_t table[kMaxChannels][256];
};

// 16 bytes of output.
struct alignas(16) OutputVector {
  uint32_t words[4];
};

// Vectors of a thread that writes an NHWC image with runs.
inline constexpr int kStoredVectors = 3;
// Vectors of a thread in an exchange: 4 in a block that copies bytes, 3 in any
// other, so that BlockMap::table stays.
inline constexpr int kExchangeVectors = 4;

// The shared memory of a block.
struct BlockState {
  BlockWork work;
  MoveProgram field;
  int64_t draw_indices[kMaxBlockSamples];
  const uint8_t* sources[kMaxBlockSamples];
  ColumnSpan runs[kMaxBlockSamples];  // if the plan has runs
  BlockRow rows[kMaxBlockRows];
  union {
    BlockMap map;
    // With runs, while the block writes.
    OutputVector exchange[kBlockThreads * kExchangeVectors];
  };
  uint32_t fill_bits[kMaxMoves][kMaxChannels];
};

static_assert(offsetof(BlockMap, table) >=
              sizeof(OutputVector) * kBlockThreads * (kExchangeVectors - 1));

// Stores elements, and vectors of 4, 8 or 16 aligned bytes.
struct MemorySink {
  DATASETD_HOST_DEVICE void Store(uint8_t* to, int size_bytes, int64_t index,
                                  uint64_t bits) const {
    StoreBits(to, size_bytes, index, bits);
  }
  template <int kWords>
  DATASETD_HOST_DEVICE void StoreVector(uint8_t* to,
                                        const uint32_t (&words)[kWords]) const {
    static_assert(kWords == 1 || kWords == 2 || kWords == 4);
#if defined(__CUDA_ARCH__)
    if constexpr (kWords == 1) {
      *reinterpret_cast<uint32_t*>(to) = words[0];
    } else if constexpr (kWords == 2) {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint4*>(to) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
#else
    memcpy(to, words, sizeof(words));
#endif
  }
  // Stores vectors that follow those of the thread before, of which the first
  // `num_lanes` threads of the warp have some. All threads of the warp call it,
  // and exchange their vectors in its part of BlockState::exchange, so that
  // they store neighbours at a time.
  DATASETD_HOST_DEVICE void StoreConsecutive(
      uint8_t* to, const uint32_t (&words)[kStoredVectors][4], int lane,
      int num_lanes, OutputVector* exchange) const {
#if defined(__CUDA_ARCH__)
    auto* vectors = reinterpret_cast<uint4*>(exchange);
    if (lane < num_lanes) {
      DATASETD_UNROLL
      for (int v = 0; v < kStoredVectors; ++v) {
        vectors[lane * kStoredVectors + v] =
            make_uint4(words[v][0], words[v][1], words[v][2], words[v][3]);
      }
    }
    __syncwarp();
    if (lane < num_lanes) {
      auto* out = reinterpret_cast<uint4*>(to) - lane * (kStoredVectors - 1);
      vectors += lane;
      DATASETD_UNROLL
      for (int v = 0; v < kStoredVectors; ++v) {
        *out = *vectors;
        out += num_lanes;
        vectors += num_lanes;
      }
    }
    __syncwarp();
#else
    if (lane >= num_lanes) return;
    for (int v = 0; v < kStoredVectors; ++v) {
      StoreVector(to + 16 * v, words[v]);
    }
#endif
  }
};

// Inserts element `index`, of kSizeBytes, into a vector, after those before it.
template <int kSizeBytes, int kWords>
DATASETD_HOST_DEVICE inline void PackElement(uint32_t (&words)[kWords],
                                             int index, uint32_t bits) {
  constexpr int kPerWord = 4 / kSizeBytes;
  uint32_t& word = words[index / kPerWord];
  if (kSizeBytes == 2 && index % kPerWord == 1) {
    word = PermuteBytes(word, bits, 0x5410);
  } else {
    word |= bits << (8 * kSizeBytes * (index % kPerWord));
  }
}

// Returns the positions per vector for elements of `size_bytes`; 0: no vector.
constexpr int VectorPositions(int size_bytes) {
  return size_bytes == 0 ? 1 : 16 / size_bytes;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MOVES_BLOCK_STATE_H_
