// Checks that fields with a common draw_id have equal sizes per sample.

#ifndef DATASETD_SERVER_PIPELINE_PAIRED_SIZES_H_
#define DATASETD_SERVER_PIPELINE_PAIRED_SIZES_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/dataset.h"
#include "server/dataset/field_spec.h"

namespace datasetd {

// Windows drawn from a sample's own size are equal for two fields only if the
// sample has the same size in both. `fields` and `programs` are the batch's;
// field f is made of the dataset's field sources[f].
//   INVALID_ARGUMENT  a sample's sizes differ; names the fields and the sample
absl::Status CheckPairedSizes(const Dataset& dataset,
                              absl::Span<const size_t> sources,
                              absl::Span<const FieldSpec> fields,
                              absl::Span<const FieldProgram> programs);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_PAIRED_SIZES_H_
