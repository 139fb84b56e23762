// The augment kernel: gathers, moves, casts and normalises a batch's samples
// and writes them to the batch's slot, in one pass.
//
// params.h documents the parameters. Contract of both implementations:
//
//  | contract      |                                                         |
//  | ------------- | ------------------------------------------------------- |
//  | image in      | [N, H, W, C], uint8 or float32, C in 1..4, samples      |
//  |               | sample_stride_bytes apart                               |
//  | image out     | [B, C, H, W] or [B, H, W, C]; uint8, float16, bfloat16, |
//  |               | float32                                                 |
//  | other fields  | [N, in_width] -> [B, in_width]; any dtype as it is; an  |
//  |               | integer to int64; any to float16, bfloat16, float32; of |
//  |               | ragged samples a crop (crop.h)                          |
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
//  | ragged        | images are chains; samples lie where field.ragged says, |
//  |               | each with its own H and W                               |
//
// REQUIRES: a program compiled by server/pipeline/pipeline.h: the sizes of
// moves match each other and the field, windows are inside their input, reflect
// padding is smaller than its input, symmetric padding at most as large.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_H_

#include "cuda/kernels/program/params.h"

namespace datasetd {

// Runs `program` for one batch or part on the calling thread. On return all
// writes are complete and visible to other threads. All pointers are to host
// memory. Thread-safe for batches that do not overlap. Calls the thread's
// HostRun (host_checkpoint.h) about once per row of an image; if that stops the
// work, the output is incomplete.
void AugmentHost(const AugmentProgram& program, const BatchTask& batch);

// Position at which a batch continues: a field of the program, and a row.
struct HostPosition {
  int32_t field = 0;
  int32_t row = 0;  // 0: first row of the part
};

// Like AugmentHost, but begins at *position. Returns false and updates
// *position if the thread's run EndsAtSample.
bool AugmentHostFrom(const AugmentProgram& program, const BatchTask& batch,
                     HostPosition* position);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_AUGMENT_H_
