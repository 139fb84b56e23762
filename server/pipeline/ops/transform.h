// The family of an op, and the values and defaults of its parameters, from the
// options of transform.proto (op_options.proto).
//
// Pure functions; thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_OPS_TRANSFORM_H_
#define DATASETD_SERVER_PIPELINE_OPS_TRANSFORM_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "datasetd/v1/transform.pb.h"

namespace datasetd {

// The ops of one field, in order.
using Transforms = std::vector<v1::Transform>;

// Maximum number of ops per field, those inside others counted.
inline constexpr int kMaxTransforms = 256;

// Returns the transforms of a request with their defaults filled in: the form
// that the functions of server/pipeline take.
//   INVALID_ARGUMENT  an op or the value of a parameter is unknown or out of
//                     range; names `where`, the position, op and parameter.
//                     There are more than kMaxTransforms
absl::StatusOr<Transforms> CompleteTransforms(
    const google::protobuf::RepeatedPtrField<v1::Transform>& transforms,
    absl::string_view where);

// Fills in the defaults of unset parameters, also in inner transforms.
void FillDefaults(v1::Transform* transform);

// Checks the parameters of an op without its inner transforms. Errors are those
// of CompleteTransforms without the position.
absl::Status CheckTransform(const v1::Transform& transform);

// The message of the op, such as v1::RandomCrop; null if there is none.
const google::protobuf::Message* OpOf(const v1::Transform& transform);

// Returns "RandomCrop", for example.
std::string TransformName(const v1::Transform& transform);

// REQUIRES: the transform has an op.
const v1::OpOptions& OptionsOf(const v1::Transform& transform);

// The second counter word of an op's draws; see docs/randomness.md. Fields, and
// positions in a field's list including RandomApply's ops, are below 256.
inline constexpr uint32_t kSharedOpIndex = 0x10000;
inline constexpr int kViewShift = 17;
inline uint32_t OpIndex(uint32_t field_index, uint32_t position,
                        uint32_t draw_id, uint32_t view) {
  return view << kViewShift | (draw_id != 0 ? kSharedOpIndex | draw_id
                                            : field_index << 8 | position);
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_TRANSFORM_H_
