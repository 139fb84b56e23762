// Prepares the labels that MixUp and CutMix turn into float32 [B, num_classes].
//
// Pure functions, except CheckMixedLabels, which reads the dataset;
// thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_MIX_LABELS_H_
#define DATASETD_SERVER_PIPELINE_MIX_LABELS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/dataset.h"
#include "server/dataset/field_spec.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd {

// Returns the name of the field of labels that an op mixes; empty if it mixes
// none.
std::string MixedLabels(const v1::Transform& transform);

// Links each mix in `programs` to its label field, and sets the field's
// num_classes. CompileField made `programs` from `fields` and `transforms`, in
// the same order. If several images share labels, the first one writes them.
// REQUIRES: one program and one list of transforms per field.
//   INVALID_ARGUMENT  the label field does not exist, is not an integer scalar,
//                     has transforms of its own, or is mixed by two images with
//                     different draws or box sizes
absl::Status LinkMixedLabels(absl::Span<const FieldSpec> fields,
                             absl::Span<const Transforms> transforms,
                             absl::Span<FieldProgram> programs);

// Checks the mixed labels, if any. Those of a field are read back from the
// device once for each dataset, and again where one is wrong. Blocks. REQUIRES:
// `programs` are those of the dataset's fields `sources`, linked.
//   INVALID_ARGUMENT  a label is not within 0..num_classes - 1
// Also errors of the backend.
absl::Status CheckMixedLabels(const Dataset& dataset,
                              absl::Span<const size_t> sources,
                              absl::Span<const FieldProgram> programs);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_MIX_LABELS_H_
