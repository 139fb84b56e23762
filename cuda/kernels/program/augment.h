// The augment kernel: gathers a batch's samples, moves, casts and normalises
// them, and writes them into the batch's slot, in one pass.
//
// params.h says what each field means; this is what both implementations keep:
//
//  | contract      |                                                         |
//  | ------------- | ------------------------------------------------------- |
//  | image in      | [N, H, W, C], uint8 or float32, C in 1..4, samples      |
//  |               | sample_stride_bytes apart                               |
//  | image out     | [B, C, H, W] or [B, H, W, C]; uint8, float16, bfloat16, |
//  |               | float32                                                 |
//  | other fields  | [N, in_width] -> [B, in_width]; any dtype as it is; an  |
//  |               | integer to int64; any to float16, bfloat16, float32     |
//  | limits        | at most kMaxMoves moves, kMaxValueOps value ops; heights|
//  |               | and widths at least 1; a sample's elements, in, out and |
//  |               | between moves, below 2^30; epochs and sample indices    |
//  |               | below 2^32                                              |
//  | alignment     | source, sample stride and field offset: of the element; |
//  |               | on CUDA field offsets of 16 bytes and output planes of a|
//  |               | multiple of 16 are faster, on the host both of 64       |
//  | in place      | no: slot, source and indices must not overlap           |
//  | written       | each element of rows 0..num_samples-1 of each field, and|
//  |               | of the indices if asked for, exactly once; nothing else |
//  | randomness    | of (seed, epoch, draw index, op index) alone; the draw  |
//  |               | index is the sample's unless the batch says otherwise;  |
//  |               | of mixes the batch's, with the row if drawn per sample  |
//  | determinism   | the same bits on every run, host and device, NaN too    |
//  | rounding      | float32 IEEE steps, then one rounding to nearest even;  |
//  |               | a NaN computed or rounded is the quiet NaN 0x7FC00000,  |
//  |               | 0x7E00, 0x7FC0; to uint8: clamped to 0..255, NaN is 0   |
//  | memory        | nothing is allocated; AugmentHost takes 128 KiB of stack|
//  | chains        | an image field with steps is run by chain_executor.h, in |
//  |               | program.scratch; images in may be float16 and bfloat16  |
//  |               | then. One with a mix writes its labels, too             |
//  | ragged        | fields are chains; samples lie where field.ragged says, |
//  |               | each with its own H and W                               |
//
// REQUIRES: a program as server/pipeline/pipeline.h compiles it: sizes of the
// moves that fit each other and the field, windows inside their input, reflect
// padding below the size of its input and symmetric padding up to it.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_H_

#include "cuda/kernels/program/params.h"

namespace datasetd {

// Runs `program` for one batch, or the part of it, on the calling thread;
// complete on return, also in the order seen by other threads. All pointers are
// host memory. Thread-safe for batches that do not overlap. A HostRun of the
// thread (host_checkpoint.h) is let in about once per row of an image; where it
// says that the work is not to go on, what is written is not complete.
void AugmentHost(const AugmentProgram& program, const BatchTask& batch);

// Where a batch goes on: a field of the program, and a row.
struct HostPosition {
  int32_t field = 0;
  int32_t row = 0;  // 0: the first of the part
};

// As AugmentHost, but begins at *position, and returns false with a new one
// where the thread's run EndsAtSample.
bool AugmentHostFrom(const AugmentProgram& program, const BatchTask& batch,
                     HostPosition* position);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_H_
