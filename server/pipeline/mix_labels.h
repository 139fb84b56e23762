// The labels that MixUp and CutMix make float32 [B, num_classes].
//
// Pure functions, but that CheckMixedLabels reads the dataset; thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_MIX_LABELS_H_
#define DATASETD_SERVER_PIPELINE_MIX_LABELS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/dataset.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/transform_spec.h"

namespace datasetd {

// Ties every mix in `programs`, which CompileField made from `fields` and
// `transforms` in this order, to its field of labels, and that to num_classes.
// Of several images with the same labels the first one writes them.
//   INVALID_ARGUMENT  no such field; it is no scalar of integers; it has
//                     transforms of its own; two images mix it with
//                     other draws, or cut boxes of other sizes
// REQUIRES: a program and a list of transforms for each field.
absl::Status LinkMixedLabels(
    absl::Span<const FieldSpec> fields,
    absl::Span<const std::vector<TransformSpec>> transforms,
    absl::Span<FieldProgram> programs);

// Reads the mixed labels of all samples back from the device, if there are any;
// waits for it.
//   INVALID_ARGUMENT  a label is not within 0..num_classes - 1
//   and the backend's errors
// REQUIRES: `programs` of the dataset's fields `sources`, linked.
absl::Status CheckMixedLabels(const Dataset& dataset,
                              absl::Span<const size_t> sources,
                              absl::Span<const FieldProgram> programs);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_MIX_LABELS_H_
