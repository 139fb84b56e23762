// Compiles the ops on one field into what the augment kernel runs.
//
// Everything that can be wrong with a pipeline is found here, before memory is
// taken: what comes out satisfies the REQUIRES of
// cuda/kernels/program/augment.h. Pure functions; thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_PIPELINE_H_
#define DATASETD_SERVER_PIPELINE_PIPELINE_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/transform_spec.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Ops that one field can have.
inline constexpr int kMaxTransforms = 256;

// The program of field `field_index` of a dataset; `source`, `ragged`,
// `sample_stride_bytes` and `offset_bytes` are left 0.
//
// Images are [H, W, C] or [H, W], uint8 or float32, with 1..kMaxChannels
// channels, and take every op:
//   - Geometry is torchvision's. RandomCrop pads once, by `padding` plus, with
//     pad_if_needed, the whole lack on both sides; CenterCrop pads an image
//     that is too small with zeros. An op that changes nothing is left out.
//   - ToDtype to float16, bfloat16 or float32; from uint8 with `scale` it
//     divides by 255, from a float type it never scales. The arithmetic is
//     float32 throughout and rounds once, to the last dtype.
//   - Fills are in the units of the image at their op and are taken through
//     the value ops after it here, in the kernel's arithmetic. On a uint8
//     image they must be integers within 0..255.
//   - MixUp and CutMix are last, and not in a RandomApply. Their labels are
//   tied
//     to them afterwards (server/pipeline/mix_labels.h).
// A packed field's samples have the `sizes`: each is there once; at most
// kMaxRaggedExtent. Its ops must make them one size, and before that only keep
// it, pad, or resize to a shorter edge; ops that look at a size are checked
// against each.
// A mask takes what ForMask leaves (server/pipeline/mask_transform.h).
// Other fields take one ToDtype without scale: to their own dtype, to int64
// from an integer, or to float16, bfloat16, float32. Without an op scalars of
// integer type become int64 and all else stays as it is; `layout` is not used.
//
// Errors begin with the place: "field 'image', transforms[2] RandomCrop: ".
//   INVALID_ARGUMENT  an op, a parameter, or their order is wrong, or a sample
//                     would be beyond the limits from that op on
// REQUIRES: 0 <= field_index < kMaxDatasetFields; a packed field has sizes, and
// no other does.
absl::StatusOr<FieldProgram> CompileField(
    const FieldSpec& field, int field_index,
    absl::Span<const TransformSpec> ops, Layout layout,
    absl::Span<const ImageSize> sizes = {}, const TransformLimits& limits = {});

// True if samples have one size after the op, whatever they had before.
bool GivesOneSize(const TransformSpec& transform);

// True when no op draws: these may be pretransforms.
bool IsDeterministic(absl::Span<const TransformSpec> ops);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_PIPELINE_H_
