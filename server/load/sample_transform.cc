#include "server/load/sample_transform.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/augment.h"
#include "server/dataset/ragged_index.h"
#include "server/pipeline/pipeline.h"

namespace datasetd {
namespace {

// Typical folders of photographs have few distinct sizes.
constexpr size_t kMaxPrograms = 256;

bool IsAligned(const uint8_t* data) {
  return reinterpret_cast<uintptr_t>(data) % AlignedBuffer::kAlignment == 0;
}

}  // namespace

SampleTransforms MakeTransforms(const SourceInfo& source,
                                const LoadPlan& plan) {
  SampleTransforms transforms;
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    transforms.push_back(std::make_unique<SampleTransform>(
        source.fields[f], Narrow<int>(f), plan.fields[f].ops,
        plan.fields[f].resident, plan.limits.transforms));
  }
  return transforms;
}

ImageSize SampleTransform::TakeSize(absl::Span<const ImageSize>& ragged) const {
  if (source_.is_ragged) {
    const ImageSize size = ragged.front();
    ragged.remove_prefix(1);
    return size;
  }
  if (!source_.is_image) return {};
  return {source_.shape[0], source_.shape[1]};
}

absl::StatusOr<FieldProgram> SampleTransform::Compile(ImageSize size) const {
  FieldSpec field = source_;
  if (field.is_image) {
    field.shape[0] = size.height;
    field.shape[1] = size.width;
  }
  auto compiled =
      CompileField(field, field_index_, ops_, Layout::kNhwc, {}, limits_);
  if (!compiled.ok()) {
    const std::string message =
        absl::StrCat(size.height, "x", size.width,
                     " pixels (height x width): ", compiled.status().message());
    // The spec is valid for the first sample; a sample above the limits is a
    // bad sample.
    constexpr TransformLimits kNoLimits = {.max_scratch_bytes = INT64_MAX,
                                           .max_operations = INT64_MAX};
    const bool is_too_large =
        CompileField(field, field_index_, ops_, Layout::kNhwc, {}, kNoLimits)
            .ok();
    return is_too_large ? absl::InvalidArgumentError(message)
                        : absl::FailedPreconditionError(message);
  }
  FieldProgram& program = *compiled;
  if (resident_.is_packed()) {
    DATASETD_RETURN_IF_ERROR(
        CheckPacked(size, {program.out_height, program.out_width}));
  } else if (field.is_image && (program.out_height != resident_.shape[0] ||
                                program.out_width != resident_.shape[1])) {
    return absl::FailedPreconditionError(absl::StrCat(
        size.height, "x", size.width,
        " pixels (height x width), which "
        "pretransforms make ",
        program.out_height, "x", program.out_width, ", and the first sample ",
        resident_.shape[0], "x", resident_.shape[1],
        ": all must become the same size, as by Resize([H, W]) or CenterCrop"));
  }
  return program;
}

absl::Status SampleTransform::CheckPacked(ImageSize from, ImageSize to) const {
  if (IsRaggedSize(resident_, to)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      from.height, "x", from.width,
      " pixels (height x width): where samples "
      "differ in size a side has at most ",
      kMaxRaggedExtent,
      ", and a sample below 2^31 elements; give a pretransform that makes it "
      "smaller"));
}

absl::StatusOr<ImageSize> SampleTransform::ResidentSize(ImageSize size) const {
  DATASETD_RETURN_IF_ERROR(Check(size));
  if (is_identity()) return size;
  DATASETD_ASSIGN_OR_RETURN(const auto program, ProgramOf(size));
  return ImageSize{program->out_height, program->out_width};
}

absl::Status SampleTransform::Check(ImageSize size) const {
  if (!is_identity()) return ProgramOf(size).status();
  if (resident_.is_packed()) return CheckPacked(size, size);
  if (!source_.is_image ||
      (size.height == resident_.shape[0] && size.width == resident_.shape[1])) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      size.height, "x", size.width,
      " pixels (height x width), and the first sample has ", resident_.shape[0],
      "x", resident_.shape[1],
      ": give a pretransform that makes all the same size, such as "
      "Resize([H, W]) or CenterCrop"));
}

absl::StatusOr<std::shared_ptr<const FieldProgram>> SampleTransform::ProgramOf(
    ImageSize size) const {
  const std::pair<int64_t, int64_t> key(size.height, size.width);
  {
    MutexLock lock(&mutex_);
    const auto found = programs_.find(key);
    if (found != programs_.end()) return found->second;
  }
  DATASETD_ASSIGN_OR_RETURN(FieldProgram compiled, Compile(size));
  auto program = std::make_shared<const FieldProgram>(compiled);
  MutexLock lock(&mutex_);
  if (programs_.size() >= kMaxPrograms) programs_.clear();
  programs_.emplace(key, program);
  return program;
}

absl::StatusOr<int64_t> SampleTransform::ScratchBytes(ImageSize size) const {
  if (is_identity()) return 0;
  DATASETD_ASSIGN_OR_RETURN(const auto program, ProgramOf(size));
  // An unaligned output is written through an aligned buffer.
  return SaturatingAdd(
      TeamScratchBytes(*program),
      SaturatingProduct(program->out_height, program->out_width,
                        program->out_channels,
                        DtypeSizeBytes(program->out_dtype)));
}

void SampleTransform::Runner::ShrinkTo(size_t size_bytes) {
  slot_.ShrinkTo(size_bytes);
  scratch_.ShrinkTo(size_bytes);
}

absl::Status SampleTransform::Runner::Run(absl::Span<const uint8_t> from,
                                          ImageSize size,
                                          absl::Span<uint8_t> to,
                                          int64_t count) {
  if (field_program_ == nullptr || size != size_) {
    DATASETD_ASSIGN_OR_RETURN(field_program_, transform_->ProgramOf(size));
    size_ = size;
    if (program_ == nullptr) program_ = std::make_unique<AugmentProgram>();
    program_->indices_offset_bytes = -1;
    program_->num_fields = 1;
    program_->fields[0] = *field_program_;
    program_->fields[0].offset_bytes = 0;
    program_->fields[0].sample_stride_bytes =
        static_cast<int64_t>(from.size()) / count;
  }
  const ScratchPlan scratch = PlanScratch(*program_, 1);
  if (scratch.size_bytes > 0) {
    scratch_.Reserve(static_cast<size_t>(scratch.size_bytes));
    scratch.Give(scratch_.data(), program_.get());
    ClearTeamFlags(*program_);
  }
  program_->fields[0].source = from.data();
  while (static_cast<int64_t>(indices_.size()) < count) {
    indices_.push_back(static_cast<int64_t>(indices_.size()));
  }
  BatchTask task = {};
  task.indices = indices_.data();
  task.num_samples = Narrow<int32_t>(count);
  if (IsAligned(to.data())) {
    task.slot = to.data();
    AugmentHost(*program_, task);
    return absl::OkStatus();
  }
  slot_.Reserve(to.size());
  task.slot = slot_.data();
  AugmentHost(*program_, task);
  std::memcpy(to.data(), slot_.data(), to.size());
  return absl::OkStatus();
}

}  // namespace datasetd
