// Explains the random draws of a feed for a sample, op by op, without running
// it.
//
// Pure functions; thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_EXPLAIN_H_
#define DATASETD_SERVER_PIPELINE_EXPLAIN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"

namespace datasetd {

// One step of a pipeline. An op may have several steps (Pad and RandomCrop, for
// example); ops without effect are left out.
struct OpDraw {
  int field = 0;  // index of the field in the program
  // Position of the op in the field's transforms, counted depth first: a nested
  // op has the next number.
  int position = 0;
  // Name of torchvision's functional form: "Crop", "Resize", "AdjustHue", ...
  // For a policy, that of the op that it drew.
  std::string name;
  bool is_applied = true;
  // Parameters as in torchvision; empty if is_applied is false. Angles are
  // clockwise degrees.
  std::vector<std::pair<std::string, std::vector<double>>> parameters;
};

// Returns the draws of all fields of `program`, as compiled by
// CompileField, in the order of execution. For MixUp and CutMix only alpha is
// given: their draws depend on the batch. REQUIRES: leading steps of ragged
// fields have the sample's size (GiveSize), cropped fields its sample_steps,
// and what AddNoise reads is in host memory.
//   INVALID_ARGUMENT  epoch or sample is not below 2^32
absl::StatusOr<std::vector<OpDraw>> ExplainSample(const AugmentProgram& program,
                                                  uint64_t epoch,
                                                  int64_t sample);

// Sets `sized` to a copy of the ragged `field` for a sample of this size. May
// be called again with another size.
void GiveSize(const FieldProgram& field, ImageSize size, FieldProgram* sized);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_EXPLAIN_H_
