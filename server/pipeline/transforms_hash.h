// The identity of a feed's pipelines, for resuming: two feeds with equal
// hashes, and equal data and seed, make the same pixels.

#ifndef DATASETD_SERVER_PIPELINE_TRANSFORMS_HASH_H_
#define DATASETD_SERVER_PIPELINE_TRANSFORMS_HASH_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/transform_spec.h"

namespace datasetd {

struct FieldPipeline {
  std::string field;  // its name
  std::vector<TransformSpec> transforms;
  Layout layout = Layout::kNchw;
};

// 64 hexadecimal digits: BLAKE3 of a canonical text. Values of pixels
// count as the float32 that the kernel gets, values that are equal in all
// channels as one, no fill as 0; a fill that the padding mode does not use not
// at all. The fields and their order count, since a batch has them, and so do
// the numbers of shared draws. Stable over versions and machines. REQUIRES:
// pipelines that compile.
std::string TransformsHash(absl::Span<const FieldPipeline> pipelines);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_TRANSFORMS_HASH_H_
