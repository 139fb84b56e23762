// What the compilers of the op families (move_ops.h and its siblings) build:
// the steps of one image field, and the image as it is between them.
//
// Not thread-safe; lives on the stack of CompileField
// (server/pipeline/pipeline.h).

#ifndef DATASETD_SERVER_PIPELINE_OPS_IMAGE_COMPILER_H_
#define DATASETD_SERVER_PIPELINE_OPS_IMAGE_COMPILER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/op_family.h"
#include "server/pipeline/ops/step_cost.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Of elements of one sample, at any stage; kernels count them in 32 bits, and
// some beyond the last one.
inline constexpr int64_t kMaxElements = (int64_t{1} << 30) - 1;

inline absl::Status Invalid(std::string message) {
  return absl::InvalidArgumentError(std::move(message));
}

// "32x48".
inline std::string SizeText(int64_t height, int64_t width) {
  return absl::StrCat(height, "x", width);
}

// REQUIRES: values are at least 0.
bool FitsInSample(int64_t height, int64_t width, int64_t channels);

// Of what ops add to a side of a ragged field's samples, or make of it: 32 bits
// hold the sums.
inline constexpr int64_t kMaxRaggedChange = 1 << 28;

// How a step of a ragged field changes sizes; elsewhere it is not looked at.
struct SizeChange {
  SizeRule rule = SizeRule::kTo;
  int32_t args[kNumSizeArgs] = {};
};

class ImageCompiler {
 public:
  // `program` is of the field without ops; it must outlive this. `sizes`: of a
  // ragged field, each that a sample has, once; else none.
  ImageCompiler(FieldProgram* program, bool is_mask,
                std::vector<SampleSize> sizes, const TransformLimits& limits);
  ImageCompiler(const ImageCompiler&) = delete;
  ImageCompiler& operator=(const ImageCompiler&) = delete;

  // Samples have sizes of their own after the ops so far: these.
  bool is_ragged() const { return !sizes_.empty(); }
  absl::Span<const SampleSize> sizes() const { return sizes_; }

  // Of the image after the ops so far; the largest of a ragged one.
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int channels() const { return channels_; }
  Dtype dtype() const { return dtype_; }
  bool is_mask() const { return is_mask_; }
  // Its largest value: colour ops count from 0 to here.
  float bound() const { return dtype_ == Dtype::kUint8 ? 255.0f : 1.0f; }

  // Of the op that is compiled now: its place, and Philox counter word.
  void set_op(uint32_t position, uint32_t op_index) {
    position_ = Narrow<uint16_t>(position);
    op_index_ = op_index;
  }
  void set_dtype(Dtype dtype) { dtype_ = dtype; }

  // Steps from here on belong to a RandomApply; EndGroup is an error if they
  // leave another image than they found, or if groups are nested.
  absl::Status BeginGroup(double p);
  absl::Status EndGroup();

  // Appends a step that keeps size and channels.
  template <typename Params>
  absl::Status Add(StepKind kind, const Params& params, double p = 1.0) {
    return Add(kind, params, p, height_, width_, channels_, {SizeRule::kKeep});
  }
  // The out sizes are not used where the change does not fix them.
  template <typename Params>
  absl::Status Add(StepKind kind, const Params& params, double p,
                   int64_t out_height, int64_t out_width, int out_channels,
                   const SizeChange& change) {
    Step step = {};
    step.kind = kind;
    step.size_rule = change.rule;
    std::copy(std::begin(change.args), std::end(change.args), step.size_args);
    SetParams(params, &step);
    return Append(step, p, out_height, out_width, out_channels);
  }
  // Appends a value op.
  absl::Status AddValueOp(ValueOp op);
  // Appends a move; completes it by the sizes before and after.
  absl::Status AddMove(Move move, int64_t out_height, int64_t out_width,
                       const SizeChange& change);

  // Ends the steps with a mix of the batch; nothing may follow.
  absl::Status SetMix(MixKind kind, double alpha, bool per_sample);
  bool is_mixed() const { return program_.mix.kind != MixKind::kNone; }

  // ---- Checks ----

  // Of an image: its sides and elements.
  absl::Status CheckSize(int64_t height, int64_t width) const;
  // The upper limits alone. REQUIRES: both are at least 0.
  absl::Status CheckLargest(int64_t height, int64_t width) const;
  // Of what changes the sizes of a ragged image.
  static absl::Status CheckRaggedChange(std::initializer_list<int64_t> numbers);
  // Of a probability.
  static absl::Status CheckP(double p);
  // `low` <= value <= `high`; names the parameter.
  static absl::Status CheckRange(const char* name, double value, double low,
                                 double high);
  // Both ends so, and min <= max.
  static absl::Status CheckInterval(const char* name, const Interval& interval,
                                    double low, double high);
  // The op is one of colours: for images of 1 or 3 channels that are no mask.
  absl::Status CheckColour() const;
  // `values` has one entry, for all channels, or one per channel.
  template <typename T>
  absl::Status PerChannel(const char* name, const std::vector<T>& values,
                          float (&channels)[kMaxChannels]) const;

  // Whether a sample's operations and memory are within the limits, as far as
  // the ops go; checked for each op that is added.
  absl::Status CheckLimits() const;

  // Completes the program. REQUIRES: CheckLimits.
  void Finish();

 private:
  absl::Status Append(Step step, double p, int64_t out_height,
                      int64_t out_width, int out_channels);
  // Follows the step's rule from sizes_ on.
  absl::Status FollowSizes(Step& step, int64_t out_height, int64_t out_width);
  bool IsMovesOnly() const;
  void MakeMoves();
  void MakeChain();
  // Of the steps so far, if they are a chain.
  ChainScratch PlanParts() const;
  int64_t Operations() const;

  FieldProgram& program_;
  const bool is_mask_;
  const TransformLimits limits_;
  uint16_t position_ = 0;
  uint32_t op_index_ = 0;
  int64_t height_;
  int64_t width_;
  int channels_;
  Dtype dtype_;
  std::vector<SampleSize> sizes_;  // none once all have one size
  std::vector<Step> steps_;
  std::vector<StepCost> costs_;  // of each of them, the most of any sample

  struct Group {
    uint32_t op_index;
    double p;
    size_t first_step;
    std::vector<SampleSize> sizes;
    int64_t height, width;
    int channels;
    Dtype dtype;
  };
  std::vector<Group> group_;  // none or one
};

template <typename T>
absl::Status ImageCompiler::PerChannel(const char* name,
                                       const std::vector<T>& values,
                                       float (&channels)[kMaxChannels]) const {
  const size_t count = static_cast<size_t>(channels_);
  if (values.size() != 1 && values.size() != count) {
    return Invalid(absl::StrCat(name, " has ", values.size(),
                                " values, and the image has ", count,
                                count == 1 ? " channel" : " channels",
                                ": give one value, or one per channel"));
  }
  for (size_t c = 0; c < count; ++c) {
    const T value = values[values.size() == 1 ? 0 : c];
    // Out of float's range is as bad as infinite, and undefined to cast.
    if (!std::isfinite(value) ||
        std::abs(value) > std::numeric_limits<float>::max()) {
      return Invalid(absl::StrCat(name, " is ", value, " in channel ", c,
                                  ": it must be a finite float32"));
    }
    channels[c] = static_cast<float>(value);
  }
  return absl::OkStatus();
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_IMAGE_COMPILER_H_
