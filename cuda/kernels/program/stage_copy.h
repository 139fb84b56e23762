// Copies of samples to the device that a batch is made on, from wherever they
// lie: pinned host memory, the memory of a peer, or the device's own.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_STAGE_COPY_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_STAGE_COPY_H_

#include <cstdint>

namespace datasetd {

inline constexpr int kStageThreads = 256;
// Places in scratch memory begin at multiples of this. So do the words of the
// source that are read: memory that samples lie in has a multiple of it.
inline constexpr int64_t kStageAlignment = 16;
// A block makes one copy at a time; larger samples are several.
inline constexpr int64_t kStagePieceBytes = 32 * 1024;

// Up to the next multiple of kStageAlignment, undefined bytes are written
// behind the copy.
struct StageCopy {
  const uint8_t* from;
  uint8_t* to;  // aligned to kStageAlignment
  int64_t size_bytes;
};

// The kernel's parameter, passed by value.
struct StagePlan {
  const StageCopy* copies;  // device memory
  int64_t num_copies;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_STAGE_COPY_H_
