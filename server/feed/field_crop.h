// Compiles the crops of sequences (v1::SequenceCrop). Pure; thread-safe.

#ifndef DATASETD_SERVER_FEED_FIELD_CROP_H_
#define DATASETD_SERVER_FEED_FIELD_CROP_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/field_spec.h"
#include "server/pipeline/ops/noise_field.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Checks that the field may have its crop, or does without. With `windows` it
// must not have one.
//   INVALID_ARGUMENT  sequences without a crop, or with windows; a crop of an
//                     image or of single numbers; a length field without a crop
absl::Status CheckCrop(const v1::FieldOptions& options, const FieldSpec& spec,
                       bool has_windows);

// Compiles a field that has a crop, as CompileField, and gives `spec` the shape
// of a row. REQUIRES: CheckCrop is OK.
//   INVALID_ARGUMENT  the length, the place or the fill; and as CompileField
absl::StatusOr<FieldProgram> CompileCrop(
    const v1::FieldOptions& options, int field_index,
    absl::Span<const v1::Transform> ops, Layout layout,
    const TransformLimits& limits, const NoiseFinder& noise, FieldSpec& spec);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FIELD_CROP_H_
