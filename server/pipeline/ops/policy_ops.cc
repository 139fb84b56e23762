#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/ops/policy.h"
#include "server/pipeline/ops/op_compilers.h"

namespace datasetd {
namespace {

// AutoAugment's tables have the numbers of the wire, from 0 on.
constexpr int kFirstPolicy = v1::AUTO_AUGMENT_POLICY_IMAGENET;
static_assert(static_cast<int>(PolicyKind::kImagenet) ==
              v1::AUTO_AUGMENT_POLICY_IMAGENET - kFirstPolicy);
static_assert(static_cast<int>(PolicyKind::kCifar10) ==
              v1::AUTO_AUGMENT_POLICY_CIFAR10 - kFirstPolicy);
static_assert(static_cast<int>(PolicyKind::kSvhn) ==
              v1::AUTO_AUGMENT_POLICY_SVHN - kFirstPolicy);

// Adds the turns of a policy; `op` is its message.
template <typename Op>
absl::Status AddTurns(const Op& op, PolicyParams params, uint32_t num_turns,
                      ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(image.CheckColour());
  DATASETD_RETURN_IF_ERROR(
      SetWarp(op, image.height(), image.width(), image, &params));
  params.bound = image.bound();
  for (uint32_t turn = 0; turn < num_turns; ++turn) {
    params.turn = Narrow<int32_t>(turn);
    DATASETD_RETURN_IF_ERROR(image.Add(StepKind::kPolicy, params));
  }
  return absl::OkStatus();
}

absl::Status AddRandAugment(const v1::RandAugment& op, ImageCompiler& image) {
  if (op.magnitude() >= op.num_magnitude_bins()) {
    return Invalid(absl::StrCat("magnitude is ", op.magnitude(),
                                ": it must be below num_magnitude_bins, ",
                                op.num_magnitude_bins()));
  }
  PolicyParams params = {};
  params.kind = PolicyKind::kRandAugment;
  params.num_bins = Narrow<int32_t>(op.num_magnitude_bins());
  params.magnitude = Narrow<int32_t>(op.magnitude());
  return AddTurns(op, params, op.num_ops(), image);
}

absl::Status AddTrivialAugment(const v1::TrivialAugmentWide& op,
                               ImageCompiler& image) {
  PolicyParams params = {};
  params.kind = PolicyKind::kTrivialAugmentWide;
  params.num_bins = Narrow<int32_t>(op.num_magnitude_bins());
  return AddTurns(op, params, 1, image);
}

absl::Status AddAutoAugment(const v1::AutoAugment& op, ImageCompiler& image) {
  PolicyParams params = {};
  params.kind = static_cast<PolicyKind>(op.policy() - kFirstPolicy);
  params.num_bins = kNumAutoAugmentBins;
  return AddTurns(op, params, kPolicyRowOps, image);
}

}  // namespace

absl::Status CompilePolicyOp(const v1::Transform& op, ImageCompiler& image) {
  switch (op.op_case()) {
    case v1::Transform::kRandAugment:
      return AddRandAugment(op.rand_augment(), image);
    case v1::Transform::kTrivialAugmentWide:
      return AddTrivialAugment(op.trivial_augment_wide(), image);
    case v1::Transform::kAutoAugment:
      return AddAutoAugment(op.auto_augment(), image);
    default:
      return NoCompiler(op);
  }
}

}  // namespace datasetd
