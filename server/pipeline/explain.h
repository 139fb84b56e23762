// What a feed draws for a sample, op by op, without running it.
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

// One thing that an op of the pipeline does; an op may do several, such as Pad
// and RandomCrop, and ops that change nothing are left out.
struct OpDraw {
  int field = 0;  // index in the program
  // Of the op in the field's transforms, counted depth first: an op inside
  // another has the next number.
  int position = 0;
  // By torchvision's functional forms: "Crop", "Resize", "AdjustHue", ...
  std::string name;
  bool is_applied = true;
  // As in torchvision; none where is_applied is false. Angles are clockwise
  // degrees.
  std::vector<std::pair<std::string, std::vector<double>>> parameters;
};

// A MixUp or CutMix has its alpha only: what it draws belongs to a batch, which
// a sample does not know.
//
// The draws of all image fields of `program`, as CompileField made them, in the
// order in which they run.
//   INVALID_ARGUMENT  epoch or sample is not below 2^32
// REQUIRES: leading steps of ragged fields have got the sample's size.
absl::StatusOr<std::vector<OpDraw>> ExplainSample(const AugmentProgram& program,
                                                  uint64_t epoch,
                                                  int64_t sample);

// Makes `sized`, a copy of the ragged `field`, what that is for a sample of
// this size. May be called again, with another size.
void GiveSize(const FieldProgram& field, ImageSize size, FieldProgram* sized);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_EXPLAIN_H_
