// The state that the compilers of the op families (op_compilers.h)
// share: the steps of one image field, and the image's type and size between
// steps.
//
// Not thread-safe; lives on the stack of CompileField
// (server/pipeline/pipeline.h).

#ifndef DATASETD_SERVER_PIPELINE_OPS_IMAGE_COMPILER_H_
#define DATASETD_SERVER_PIPELINE_OPS_IMAGE_COMPILER_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/math/interpolation.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/params.h"
#include "datasetd/v1/transform.pb.h"
#include "server/pipeline/ops/step_cost.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Maximum elements of one sample at any step: kernels use 32-bit element counts
// and go slightly beyond the last element.
inline constexpr int64_t kMaxElements = (int64_t{1} << 30) - 1;

inline absl::Status Invalid(std::string message) {
  return absl::InvalidArgumentError(std::move(message));
}

// For example "32x48".
inline std::string SizeText(int64_t height, int64_t width) {
  return absl::StrCat(height, "x", width);
}

// The kernels' enums have the numbers of the wire. REQUIRES: the value is known
// and set.
Dtype ToDtypeOf(const v1::ToDtype& op);
PaddingMode ToPaddingMode(v1::PaddingMode mode);
InterpolationMode ToInterpolation(v1::InterpolationMode mode);

// True for the floating-point types that kernels write.
inline bool IsKernelFloat(Dtype dtype) {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 ||
         dtype == Dtype::kFloat32;
}

// REQUIRES: the values are not negative.
bool FitsInSample(int64_t height, int64_t width, int64_t channels);

// Limit on sizes that ops set or add per side of a ragged sample; sums fit in
// 32 bits.
inline constexpr int64_t kMaxRaggedChange = 1 << 28;

// How a step changes the sizes of a ragged field; ignored for other fields.
struct SizeChange {
  SizeRule rule = SizeRule::kTo;
  int32_t args[kNumSizeArgs] = {};
};

class ImageCompiler {
 public:
  // `program` is the field's program without ops; it must outlive this object.
  // `sizes` are the distinct sample sizes of a ragged field; empty for others.
  ImageCompiler(FieldProgram* program, bool is_mask,
                std::vector<SampleSize> sizes, const TransformLimits& limits);
  ImageCompiler(const ImageCompiler&) = delete;
  ImageCompiler& operator=(const ImageCompiler&) = delete;

  // True if samples still differ in size after the ops so far.
  bool is_ragged() const { return !sizes_.empty(); }
  absl::Span<const SampleSize> sizes() const { return sizes_; }

  // Size after the ops so far; the largest size of a ragged image.
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int channels() const { return channels_; }
  Dtype dtype() const { return dtype_; }
  bool is_mask() const { return is_mask_; }
  // The largest pixel value: colour ops use the range 0 to this.
  float bound() const { return dtype_ == Dtype::kUint8 ? 255.0f : 1.0f; }

  // Sets the position and Philox counter word of the op being compiled.
  void set_op(uint32_t position, uint32_t op_index) {
    position_ = Narrow<uint16_t>(position);
    op_index_ = op_index;
  }
  void set_dtype(Dtype dtype) { dtype_ = dtype; }

  // The following steps belong to a RandomApply. EndGroup fails if they change
  // the image's type or size, or if groups are nested.
  absl::Status BeginGroup(double p);
  absl::Status EndGroup();

  // Appends a step that keeps size and channels.
  template <typename Params>
  absl::Status Add(StepKind kind, const Params& params, double p = 1.0) {
    return Add(kind, params, p, height_, width_, channels_, {SizeRule::kKeep});
  }
  // The output size is ignored where `change` does not fix it.
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
  // Appends a move, completed from the sizes before and after.
  absl::Status AddMove(Move move, int64_t out_height, int64_t out_width,
                       const SizeChange& change);

  // Ends the steps with a mix of the batch; must be the last.
  absl::Status SetMix(MixKind kind, double alpha, bool per_sample);
  bool is_mixed() const { return program_.mix.kind != MixKind::kNone; }

  // ---- Checks ----

  // Checks an image's sides and number of elements.
  absl::Status CheckSize(int64_t height, int64_t width) const;
  // Checks the upper limits only. REQUIRES: both are at least 0.
  absl::Status CheckLargest(int64_t height, int64_t width) const;
  // Checks numbers that change the sizes of a ragged image.
  static absl::Status CheckRaggedChange(std::initializer_list<int64_t> numbers);
  // Checks that colour ops apply: an image of 1 or 3 channels.
  absl::Status CheckColour() const;
  // Expands `values`, which has one entry or one per channel. REQUIRES: they
  // are finite as float32.
  template <typename T>
  absl::Status PerChannel(const char* name,
                          const google::protobuf::RepeatedField<T>& values,
                          float (&channels)[kMaxChannels]) const;

  // Checks a sample's operations and memory for the ops so far; called after
  // each op.
  absl::Status CheckLimits() const;

  // Completes the program. REQUIRES: CheckLimits is OK.
  void Finish();

 private:
  absl::Status Append(Step step, double p, int64_t out_height,
                      int64_t out_width, int out_channels);
  // Applies the step's size rule to sizes_.
  absl::Status FollowSizes(Step& step, int64_t out_height, int64_t out_width);
  bool IsMovesOnly() const;
  void MakeMoves();
  void MakeChain();
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
  std::vector<SampleSize> sizes_;  // empty once all samples have one size
  std::vector<Step> steps_;
  std::vector<StepCost> costs_;  // cost of each step, maximum over samples

  struct Group {
    uint32_t op_index;
    double p;
    size_t first_step;
    std::vector<SampleSize> sizes;
    int64_t height, width;
    int channels;
    Dtype dtype;
  };
  std::vector<Group> group_;  // empty or one
};

template <typename T>
absl::Status ImageCompiler::PerChannel(
    const char* name, const google::protobuf::RepeatedField<T>& values,
    float (&channels)[kMaxChannels]) const {
  if (values.size() != 1 && values.size() != channels_) {
    return Invalid(absl::StrCat(name, " has ", values.size(),
                                " values, and the image has ", channels_,
                                channels_ == 1 ? " channel" : " channels",
                                ": give one value, or one per channel"));
  }
  for (int c = 0; c < channels_; ++c) {
    channels[c] = static_cast<float>(values[values.size() == 1 ? 0 : c]);
  }
  return absl::OkStatus();
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_IMAGE_COMPILER_H_
