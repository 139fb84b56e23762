// Whether fields that share what ops draw can share it.

#ifndef DATASETD_SERVER_PIPELINE_PAIRED_SIZES_H_
#define DATASETD_SERVER_PIPELINE_PAIRED_SIZES_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/dataset.h"

namespace datasetd {

// Windows that are drawn by a sample's own size are the same for two fields
// only where the sample is equally large in both. `programs[f]` is of the
// dataset's field sources[f].
//   INVALID_ARGUMENT  one is not; names fields and sample
absl::Status CheckPairedSizes(const Dataset& dataset,
                              absl::Span<const size_t> sources,
                              absl::Span<const FieldProgram> programs);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_PAIRED_SIZES_H_
