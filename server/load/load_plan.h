// How much of what a load takes, and in which pieces.

#ifndef DATASETD_SERVER_LOAD_LOAD_PLAN_H_
#define DATASETD_SERVER_LOAD_LOAD_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/checked_math.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/sample_source.h"
#include "server/dataset/transform_spec.h"
#include "server/load/decode_budget.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Field by field a chunk begins at a multiple of it (BatchTask::slot).
inline constexpr int64_t kStagingAlignment = 256;
// The most that LoadPlan::buffer_bytes() is where one sample may take so much.
int64_t MaxLoadBufferBytes(int64_t max_sample_bytes);

// Held at the largest multiple.
constexpr int64_t RoundUpTo(int64_t value, int64_t multiple) {
  return SaturatingRoundUp(value, multiple);
}

// By sample, as resident; 0 x 0 where its headers are bad.
using SampleSizes = std::shared_ptr<const std::vector<ImageSize>>;

// The most that one sample may take.
struct LoadLimits {
  TransformLimits transforms;
  // Of host memory.
  int64_t max_sample_bytes = DecodeBudget::Limits().sample_bytes;
};

// How a source becomes resident, known before a sample is read.
struct LoadPlan {
  struct FieldPlan {
    FieldSpec resident;
    // Set if the field has pretransforms; source and offset are not.
    bool has_program = false;
    FieldProgram program = {};
    // Of an encoded source: what `program` was compiled from.
    std::vector<TransformSpec> ops;
    // Of an encoded source's packed field: the samples' sizes as resident.
    SampleSizes sizes;
    // It is not known yet whether it is packed, and how large the samples are.
    bool needs_sizes = false;
  };
  std::vector<FieldPlan> fields;  // one for each field of the source
  LoadLimits limits;
  bool is_encoded = false;
  BadSamplePolicy bad_samples = BadSamplePolicy::kFail;
  int64_t max_bad_samples = 0;
  int num_decode_threads = 1;
  // Encoded: the source may decode ragged images to less than their size, but
  // not to less than this; 0 x 0: it may not.
  ImageSize smaller_images;
  int64_t chunk_samples = 0;  // at most
  int num_staging_buffers = 0;
  int64_t staging_bytes = 0;   // of one buffer
  int64_t resident_bytes = 0;  // on the device, for good
  int64_t scratch_bytes = 0;   // on the device, while loading

  bool needs_sizes() const;
  // What the load keeps of the host while it runs, samples left out.
  int64_t buffer_bytes() const;

  // The most that the load takes of the host, if no image is larger than
  // `largest_sample_bytes` raw and decoded, and all samples at once have
  // `decode_bytes`.
  int64_t host_bytes(int64_t largest_sample_bytes, int64_t decode_bytes) const;
};

// `programs[f]` as CompileField made it from field f's pretransforms, or
// nullopt where there are none; `max_teams` is the backend's. Of an encoded
// source bad_samples, max_bad_samples, num_decode_threads and the fields' ops
// are left to the caller.
//
// Samples of an encoded source have one size as resident, but of the fields f
// that have own_sizes[f]: these are packed, unless all are alike; what is null
// is not known yet, and is left out of the numbers.
// REQUIRES: a plain source with a packed field has no programs.
//   INVALID_ARGUMENT  the dataset is larger than any memory, or a sample than
//                     the limits
absl::StatusOr<LoadPlan> PlanLoad(
    const SourceInfo& source,
    const std::vector<std::optional<FieldProgram>>& programs, int max_teams,
    const std::vector<std::optional<SampleSizes>>& own_sizes = {},
    const LoadLimits& limits = {});

// A program of one field, which writes no indices.
AugmentProgram ProgramOf(const FieldProgram& field);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_LOAD_PLAN_H_
