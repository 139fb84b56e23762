// The field of a dataset that AddNoise takes noise from.

#ifndef DATASETD_SERVER_PIPELINE_OPS_NOISE_FIELD_H_
#define DATASETD_SERVER_PIPELINE_OPS_NOISE_FIELD_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cuda/kernels/program/params.h"
#include "datasetd/v1/transform.pb.h"
#include "server/dataset/field_spec.h"

namespace datasetd {

struct NoiseField {
  FieldSpec spec;
  int64_t num_samples = 0;
  // As of a FieldProgram, in memory of the device that runs it.
  const uint8_t* source = nullptr;
  const RaggedSample* ragged = nullptr;
};

// Returns the field for an op on the field `name`. Errors do not include the
// position. Empty: there is no noise.
using NoiseFinder = std::function<absl::StatusOr<NoiseField>(
    const v1::AddNoise& op, const std::string& name)>;

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_NOISE_FIELD_H_
