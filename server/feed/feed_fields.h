// Selects and compiles the fields of a feed. Pure; thread-safe.

#ifndef DATASETD_SERVER_FEED_FEED_FIELDS_H_
#define DATASETD_SERVER_FEED_FEED_FIELDS_H_

#include <google/protobuf/map.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/kernels/program/params.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/dataset.h"
#include "server/dataset/field_spec.h"
#include "server/pipeline/ops/noise_field.h"
#include "server/pipeline/ops/transform_limits.h"
#include "server/pipeline/transforms_hash.h"

namespace datasetd {

// By the field's name.
using FieldOptionsMap = std::map<std::string, v1::FieldOptions>;

// Returns the options of a request, with the defaults of the transforms.
//   INVALID_ARGUMENT  a view or a layout; and as CompleteTransforms
absl::StatusOr<FieldOptionsMap> CompleteFieldOptions(
    const google::protobuf::Map<std::string, v1::FieldOptions>& fields);

// The options of some of a mixture's parts: those of the bits in `parts`.
struct PartFields {
  uint64_t parts = 0;
  FieldOptionsMap options;
};

// Returns the options of all parts, those that are equal once; empty if no part
// has its own, so that FeedOptions.fields are all parts'. Errors as
// CompleteFieldOptions. REQUIRES: at most kMaxMixtureParts parts.
absl::StatusOr<std::vector<PartFields>> CompletePartFields(
    const v1::FeedOptions& options);

// Each vector has one element per field of a batch, in the batch's order.
struct FeedFields {
  std::vector<size_t> sources;  // indices of the dataset's fields
  std::vector<FieldSpec> specs;
  // With the dataset's memory set, and labels linked to the images that they
  // are mixed with.
  std::vector<FieldProgram> programs;
  std::vector<FieldPipeline> pipelines;  // for the transforms hash
  // Of windows, in steps: where the field's begins in that of the row.
  std::vector<int64_t> shifts;

  int64_t largest_shift() const;
};

// Returns sources and specs of the fields `names` of a batch. If `names` is
// empty: all of the dataset, then those of `options` with a source.
//   INVALID_ARGUMENT  unknown or repeated field; more than kMaxFields
absl::StatusOr<FeedFields> ChooseFeedFields(const Dataset& dataset,
                                            std::vector<std::string> names,
                                            const FieldOptionsMap& options);

// Compiles the fields that ChooseFeedFields returns. A field's random draws do
// not depend on the choice of other fields. `options` are of
// CompleteFieldOptions. With `skips_packed`, packed fields without options get
// empty programs. With `windows` each row has windows->length() samples.
// `noise` finds what AddNoise adds.
//   INVALID_ARGUMENT  as ChooseFeedFields; options for a field that is not
//                     selected; and as CompileField, LinkMixedLabels and
//                     CheckPairedSizes; windows of an image, or of too many
//                     elements; a shift without windows; a row_field without
//                     documents; and as CheckCrop and CompileCrop
absl::StatusOr<FeedFields> CompileFeedFields(
    const Dataset& dataset, std::vector<std::string> names,
    const FieldOptionsMap& options, bool skips_packed,
    const TransformLimits& limits = {},
    const v1::WindowOrder* windows = nullptr, const NoiseFinder& noise = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_FIELDS_H_
