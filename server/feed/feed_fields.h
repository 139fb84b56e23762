// The fields that a feed gives, chosen and compiled.
//
// Pure; thread-safe.

#ifndef DATASETD_SERVER_FEED_FEED_FIELDS_H_
#define DATASETD_SERVER_FEED_FEED_FIELDS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/dataset.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/transform_spec.h"
#include "server/pipeline/ops/transform_limits.h"
#include "server/pipeline/transforms_hash.h"

namespace datasetd {

struct FeedFieldOptions {
  std::vector<TransformSpec> transforms;
  Layout layout = Layout::kNchw;
};

// One of each for each field of a batch, in its order.
struct FeedFields {
  std::vector<size_t> sources;  // of the dataset's fields
  std::vector<FieldSpec> specs;
  // With the dataset's memory, and labels linked to what mixes them.
  std::vector<FieldProgram> programs;
  std::vector<FieldPipeline> pipelines;  // for the transforms hash
};

// The fields `names` of the dataset, or all if there are none. What a field's
// ops draw does not depend on which others there are. Packed fields without
// options have empty programs if `skips_packed`.
//   INVALID_ARGUMENT  no such field, or one is named twice; more than
//                     kMaxFields; options of a field that is not chosen; and
//                     as CompileField, LinkMixedLabels, CheckPairedSizes
absl::StatusOr<FeedFields> CompileFeedFields(
    const Dataset& dataset, absl::Span<const std::string> names,
    const std::map<std::string, FeedFieldOptions>& options, bool skips_packed,
    const TransformLimits& limits = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_FIELDS_H_
