// The plan of a load: memory needs and chunk sizes.

#ifndef DATASETD_SERVER_LOAD_LOAD_PLAN_H_
#define DATASETD_SERVER_LOAD_LOAD_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/sample_source.h"
#include "server/load/load_request.h"
#include "server/pipeline/ops/transform.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// In a chunk, each field starts at a multiple of this (BatchTask::slot).
inline constexpr int64_t kStagingAlignment = 256;
// The most that LoadPlan::buffer_bytes() is where one sample may take so much.
int64_t MaxLoadBufferBytes(int64_t max_sample_bytes);

// Resident size of each sample; 0 x 0 if its headers are bad.
using SampleSizes = std::shared_ptr<const std::vector<ImageSize>>;

// Limits on one sample.
struct LoadLimits {
  TransformLimits transforms;
  // Host memory.
  int64_t max_sample_bytes = DecodeBudget::Limits().sample_bytes;
};

// How a source becomes resident; computed before any sample is read.
struct LoadPlan {
  struct FieldPlan {
    FieldSpec resident;
    bool is_transformed = false;
    Transforms ops;  // its pretransforms
    // Packed fields of encoded sources: the resident size of each sample.
    SampleSizes sizes;
    // True while it is unknown whether the field is packed, and the sizes.
    bool needs_sizes = false;
  };
  std::vector<FieldPlan> fields;  // one per field of the source
  int64_t num_samples = 0;        // of the source
  LoadLimits limits;
  bool is_encoded = false;
  v1::BadSamplePolicy bad_samples = v1::BAD_SAMPLE_POLICY_FAIL;
  int64_t max_bad_samples = 0;
  // Threads that read headers and samples, decode, and run pretransforms.
  int num_workers = 1;
  // Encoded sources: ragged images may be decoded at a reduced size, but not
  // below this one; 0 x 0: not allowed.
  ImageSize smaller_images;
  int64_t chunk_samples = 0;  // at most
  int num_staging_buffers = 0;
  int64_t staging_bytes = 0;  // of one buffer
  // Plain sources: the fields with pretransforms as they are read.
  int num_input_buffers = 0;
  int64_t input_bytes = 0;     // of one buffer
  int64_t resident_bytes = 0;  // permanent
  int64_t index_bytes = 0;     // of them, of packed fields' indices

  bool needs_sizes() const;
  // True if samples are decoded or pretransformed.
  bool has_work() const;
  // Host memory that the load keeps while it runs, samples left out.
  int64_t buffer_bytes() const;

  // Maximum host memory of the load if no image needs more than
  // `largest_sample_bytes` raw and decoded, and all samples in flight together
  // have `decode_bytes`.
  int64_t host_bytes(int64_t largest_sample_bytes, int64_t decode_bytes) const;
};

// Plans how a source becomes the resident dataset that a request describes.
//
// Samples of an encoded source have one resident size, except in fields f with
// own_sizes[f]: these are packed, unless all sizes are equal. A null element
// means that the sizes are not known yet; the field is then left out of the
// numbers. If `own_sizes` is empty, the fields whose sizes must be found have a
// null element; plan them again with what a SampleScan found.
//   INVALID_ARGUMENT  a pretransform is random, invalid or for an unknown
//                     field; more than kMaxDatasetFields; or the dataset
//                     exceeds any memory, or a sample the limits
absl::StatusOr<LoadPlan> PlanSource(
    const LoadRequest& request, const SourceInfo& source,
    std::vector<std::optional<SampleSizes>> own_sizes = {},
    const LoadLimits& limits = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_LOAD_PLAN_H_
