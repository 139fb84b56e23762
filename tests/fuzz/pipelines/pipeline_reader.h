// Makes a pipeline of bytes: every input is one.

#ifndef DATASETD_TESTS_FUZZ_PIPELINES_PIPELINE_READER_H_
#define DATASETD_TESTS_FUZZ_PIPELINES_PIPELINE_READER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd {

// The field that AddNoise takes noise from.
struct Noise {
  FieldSpec spec;
  std::vector<ImageSize> sizes;  // of its samples
};

struct Pipeline {
  bool is_load = false;  // else a feed
  // The image is larger than there is memory to write; it reads as zeros.
  bool is_huge = false;
  FieldSpec field;
  std::vector<ImageSize> sizes;  // of a packed field
  Layout layout = Layout::kNchw;
  int64_t batch_size = 0;  // any number
  Transforms ops;
  Noise noise;  // of the last AddNoise
};

// In this order:
//   1 byte   bits: load, mask, NHWC; dtype (2), kind (2): dense, ragged, huge,
//            a feed's field of numbers
//   1 byte   channels
//   number   the batch size
//   sizes    dense: 2 bytes; huge: which side, and the other, from 128 on
//            wide; ragged: a count, 2 bytes each; numbers: their dtype, a
//            count, 1 byte each
//   ops      a byte says which of Transform.op, then its parameters, in the
//            order of transform.proto; a bit before each that may be unset;
//            behind AddNoise its noise: dtype, bits: packed, image; channels
//            (2), dimensions (2), and a count, 1 byte of steps each
// A number's first byte is below 80 for less than 8, below 160 for less than
// 80, names an extreme number, which a second byte changes a little, or stands
// before 4 bytes of any.
Pipeline ReadPipeline(absl::Span<const uint8_t> bytes);

}  // namespace datasetd

#endif  // DATASETD_TESTS_FUZZ_PIPELINES_PIPELINE_READER_H_
