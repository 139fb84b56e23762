// The pretransforms of one field of a source, run on the host for samples of
// any size.
//
// Thread-safe; a Runner is for one thread.

#ifndef DATASETD_SERVER_LOAD_SAMPLE_TRANSFORM_H_
#define DATASETD_SERVER_LOAD_SAMPLE_TRANSFORM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/sample_source.h"
#include "server/files/aligned_buffer.h"
#include "server/load/load_plan.h"
#include "server/pipeline/ops/transform.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

class SampleTransform {
 public:
  // `resident` is the result of the ops for a sample of `source`'s shape, or
  // packed if the result's size differs between samples. Without ops, samples
  // are not changed.
  SampleTransform(FieldSpec source, int field_index, Transforms ops,
                  FieldSpec resident, const TransformLimits& limits = {})
      : source_(std::move(source)),
        field_index_(field_index),
        ops_(std::move(ops)),
        resident_(std::move(resident)),
        limits_(limits) {}

  // The size of the field's image in a sample; 0 x 0 if it is none. Takes that
  // of a ragged one off `ragged`, what is left of SampleProbe::sizes.
  ImageSize TakeSize(absl::Span<const ImageSize>& ragged) const;

  bool is_identity() const { return ops_.empty(); }
  const FieldSpec& source() const { return source_; }
  const FieldSpec& resident() const { return resident_; }

  // Whether a sample of this size can become resident.
  //   FAILED_PRECONDITION  it would have another size than resident's, or an op
  //                        cannot be applied to it
  //   INVALID_ARGUMENT     it is too large for the limits: a bad sample
  absl::Status Check(ImageSize size) const;

  // The resident size of the sample. Errors as Check. REQUIRES: an image.
  absl::StatusOr<ImageSize> ResidentSize(ImageSize size) const;

  // The ops compiled for samples of this size; each size is compiled once.
  // Errors as Check. REQUIRES: !is_identity().
  absl::StatusOr<std::shared_ptr<const FieldProgram>> ProgramOf(
      ImageSize size) const;

  // Memory that a Runner takes for a sample of this size, without its input and
  // output; saturates. Errors as Check.
  absl::StatusOr<int64_t> ScratchBytes(ImageSize size) const;

  // Runs the ops, and keeps its memory between samples.
  class Runner {
   public:
    explicit Runner(const SampleTransform* transform) : transform_(transform) {}

    // `from` are `count` samples of the field, one after the other, each of
    // size `size` if it is an image; the results go to `to`. Errors as
    // ProgramOf.
    absl::Status Run(absl::Span<const uint8_t> from, ImageSize size,
                     absl::Span<uint8_t> to, int64_t count = 1);

    // Frees memory above this size.
    void ShrinkTo(size_t size_bytes);

   private:
    const SampleTransform* const transform_;
    ImageSize size_;  // of program_
    std::shared_ptr<const FieldProgram> field_program_;
    std::unique_ptr<AugmentProgram> program_;
    std::vector<int64_t> indices_;  // 0, 1, ...
    AlignedBuffer slot_;
    AlignedBuffer scratch_;
  };

 private:
  absl::StatusOr<FieldProgram> Compile(ImageSize size) const;
  absl::Status CheckPacked(ImageSize from, ImageSize to) const;

  const FieldSpec source_;
  const int field_index_;
  const Transforms ops_;
  const FieldSpec resident_;
  const TransformLimits limits_;

  mutable Mutex mutex_;
  mutable std::map<std::pair<int64_t, int64_t>,
                   std::shared_ptr<const FieldProgram>>
      programs_ ABSL_GUARDED_BY(mutex_);
};

// By field of the plan.
using SampleTransforms = std::vector<std::unique_ptr<SampleTransform>>;

SampleTransforms MakeTransforms(const SourceInfo& source, const LoadPlan& plan);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SAMPLE_TRANSFORM_H_
