// The identity of a feed's pipelines, used for resuming: feeds with equal
// hashes, data and seeds produce equal pixels.

#ifndef DATASETD_SERVER_PIPELINE_TRANSFORMS_HASH_H_
#define DATASETD_SERVER_PIPELINE_TRANSFORMS_HASH_H_

#include <string>

#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd {

struct FieldPipeline {
  std::string field;  // of the field
  Transforms transforms;
  Layout layout = Layout::kNchw;
};

// 64 hexadecimal digits: BLAKE3 of a canonical text. Pixel values count as the
// float32 that the kernel gets; equal values for all channels as one value; no
// fill as 0; a fill that the padding mode ignores is left out. The fields and
// their order count, since they define the batch, and so do draw_ids. Stable
// across versions and machines. REQUIRES: the pipelines are of
// CompleteTransforms.
std::string TransformsHash(absl::Span<const FieldPipeline> pipelines);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_TRANSFORMS_HASH_H_
