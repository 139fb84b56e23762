// Compiles the ops of one field into the program that the augment kernel runs.
//
// Everything that can be wrong with a pipeline is found here, before memory is
// taken: what comes out satisfies the REQUIRES of
// cuda/kernels/program/augment.h. Pure functions; thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_PIPELINE_H_
#define DATASETD_SERVER_PIPELINE_PIPELINE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"
#include "server/pipeline/ops/noise_field.h"
#include "server/pipeline/ops/transform.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Largest number of a view.
inline constexpr int kMaxView = 255;

// Compiles the program of field `field_index` of a dataset; `source`, `ragged`,
// `sample_stride_bytes` and `offset_bytes` stay 0.
//
// Images are [H, W, C] or [H, W], uint8 or float32, with 1..kMaxChannels
// channels, and accept all ops:
//   - Geometry is as in torchvision. RandomCrop pads once, by `padding` and,
//     with pad_if_needed, by the missing size on both sides; CenterCrop pads a
//     smaller image with zeros. An op without effect is left out.
//   - ToDtype converts to float16, bfloat16 or float32. With `scale` it divides
//     uint8 by 255; it never scales float types. Arithmetic is in float32 and
//     rounds once, to the last dtype.
//   - Fills are in the units of the image at their op; the value ops after it
//     are applied to them here, in the kernel's arithmetic. On a uint8 image
//     fills must be integers within 0..255.
//   - MixUp and CutMix come last, and not in a RandomApply. Their labels are
//     linked afterwards (server/pipeline/mix_labels.h).
// For a packed field, `sizes` are the distinct sample sizes, at most
// kMaxRaggedExtent. Its ops must produce one size, and before that may only
// keep the size, pad, or resize to a shorter edge; ops that depend on a size
// are checked against each. Masks accept geometry, ToDtype, Normalize and
// RandomApply of these; they are sampled nearest, or nearest-exact if the op
// says so, without antialias.
//
// Other fields accept one ToDtype without scale: to their own dtype, from an
// integer to int64, or to float16, bfloat16 or float32. Without ops, integer
// scalars become int64 and others are unchanged. They also accept lists of
// ToDtype, Normalize, ops on sequences and RandomApply of these, on float16,
// bfloat16 and float32 (server/pipeline/ops/sequence_compiler.h). `noise` finds
// what AddNoise adds. `layout` is ignored.
//
// Errors start with the position: "field 'image', transforms[2] RandomCrop: ".
// Views of one field with different numbers draw independently.
// REQUIRES: the defaults of `ops` are filled in (FillDefaults); 0 <=
// field_index < kMaxDatasetFields; 0 <= view <= kMaxView; packed fields, and
// only these, have sizes.
//   INVALID_ARGUMENT  an op, a parameter or the order is invalid, or an op
//                     takes a sample beyond the limits
absl::StatusOr<FieldProgram> CompileField(
    const FieldSpec& field, int field_index,
    absl::Span<const v1::Transform> ops, Layout layout,
    absl::Span<const ImageSize> sizes = {}, const TransformLimits& limits = {},
    int view = 0, const NoiseFinder& noise = {});

// True if a field that is not an image is copied with these ops, or converted
// by its one ToDtype, without float32 in between.
bool IsCopied(absl::Span<const v1::Transform> ops);

// The shape of a sample of a field that is not an image after its program.
std::vector<int64_t> OutputShape(const FieldSpec& field,
                                 const FieldProgram& program);

// True if all samples have one size after the op, whatever their size before.
// REQUIRES for this and the next: each transform has an op.
bool GivesOneSize(const v1::Transform& op);

// True if no op is random; the ops may then be pretransforms.
bool IsDeterministic(absl::Span<const v1::Transform> ops);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_PIPELINE_H_
