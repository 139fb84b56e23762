#include "cuda/device/augment_kernels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/chain_plan.h"

// third_party/cuda/cuda.bzl
extern "C" {
extern const unsigned char augment_fatbin[];
extern const char augment_fatbin_archs[];
}

namespace datasetd {
namespace {

// What to do about an image that the driver refuses; "" if it is not the
// image's fault.
const char* RemedyOf(CUresult error) {
  switch (error) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return "build for this GPU with --define=cuda_archs=..., or use device "
             "cpu";
    // Of the kernels, as of PTX, a driver cannot read what is newer.
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_PTX:
      return "update the NVIDIA driver, build with an older CUDA toolkit, or "
             "use device cpu";
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
      return "install libnvidia-ptxjitcompiler of the driver's version, build "
             "for this GPU with --define=cuda_archs=..., or use device cpu";
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
      return "unset CUDA_DISABLE_PTX_JIT, build for this GPU with "
             "--define=cuda_archs=..., or use device cpu";
    default:
      return "";
  }
}

absl::Status LoadStatus(const CudaContext& context, CUresult error,
                        const char* call) {
  if (error == CUDA_SUCCESS) return absl::OkStatus();
  absl::Status status = CudaStatus(error, call);
  const std::string remedy = RemedyOf(error);
  if (remedy.empty()) return status;
  DATASETD_ASSIGN_OR_RETURN(const std::string capability,
                            context.ComputeCapability());
  return absl::UnavailableError(absl::StrCat(
      "cuda:", context.ordinal(), ", compute capability ", capability,
      ", cannot run the kernels of this build, which has ",
      augment_fatbin_archs, " (", status.message(), "); ", remedy));
}

}  // namespace

void CudaModuleTraits::Destroy(Handle module) {
  DATASETD_CUDA_LOG_IF_ERROR(LoadedDriverApi()->cuModuleUnload(module));
}

absl::StatusOr<std::unique_ptr<AugmentKernels>> AugmentKernels::Load(
    const CudaContext& context) {
  DATASETD_RETURN_IF_ERROR(context.MakeCurrent());
  CUmodule module = nullptr;
  DATASETD_RETURN_IF_ERROR(LoadStatus(
      context, context.api().cuModuleLoadData(&module, augment_fatbin),
      "cuModuleLoadData"));
  auto kernels = std::make_unique<AugmentKernels>(
      context, UniqueHandle<CudaModuleTraits>(module));
  DATASETD_RETURN_IF_ERROR(kernels->Init());
  return kernels;
}

absl::Status AugmentKernels::Init() {
  const DriverApi& api = context_.api();
  // The driver may load, or compile, a kernel when it is first asked for.
  for (const auto& [function, name] : {std::pair(&augment_, "AugmentKernel"),
                                       std::pair(&chain_, "ChainKernel"),
                                       std::pair(&sequence_, "SequenceKernel"),
                                       std::pair(&stage_, "StageKernel")}) {
    DATASETD_RETURN_IF_ERROR(LoadStatus(
        context_, api.cuModuleGetFunction(function, module_.get(), name),
        "cuModuleGetFunction"));
  }
  DATASETD_ASSIGN_OR_RETURN(
      num_multiprocessors_,
      context_.Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  AugmentPlan augment_plan = {};
  DATASETD_RETURN_IF_ERROR(
      LaunchOne(augment_, 1, kBlockThreads, &augment_plan, nullptr));
  ChainPlan chain_plan = {};
  for (const CUfunction kernel : {chain_, sequence_}) {
    DATASETD_RETURN_IF_ERROR(
        LaunchOne(kernel, 1, kMaxChainThreads, &chain_plan, nullptr));
  }
  StagePlan stage_plan = {};
  DATASETD_RETURN_IF_ERROR(
      LaunchOne(stage_, 1, kStageThreads, &stage_plan, nullptr));
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamSynchronize(nullptr));
  return absl::OkStatus();
}

// One block per multiprocessor has more bytes on their way than a bus needs,
// and leaves room for the kernels of other streams.
absl::Status AugmentKernels::Stage(const StageCopy* copies, int64_t num_copies,
                                   CUstream stream) const {
  if (num_copies == 0) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(context_.MakeCurrent());
  StagePlan plan = {.copies = copies, .num_copies = num_copies};
  const auto num_blocks = static_cast<uint32_t>(
      std::min<int64_t>(num_copies, num_multiprocessors_));
  return LaunchOne(stage_, num_blocks, kStageThreads, &plan, stream);
}

absl::Status AugmentKernels::Launch(const DeviceProgram* device_program,
                                    const AugmentProgram& host_program,
                                    absl::Span<const BatchTask> batches,
                                    CUstream stream) const {
  AugmentPlan plan;
  if (batches.size() > size_t{kMaxBatchesPerLaunch} ||
      !MakeAugmentPlan(device_program, host_program, batches.data(),
                       static_cast<int>(batches.size()), &plan)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a launch of ", batches.size(), " batches; at most ",
                     kMaxBatchesPerLaunch, " of 2^31 blocks are allowed"));
  }
  DATASETD_RETURN_IF_ERROR(context_.MakeCurrent());
  DATASETD_RETURN_IF_ERROR(
      LaunchChains(device_program, host_program, batches, stream));
  if (plan.num_blocks() == 0) return absl::OkStatus();
  return LaunchOne(augment_, plan.num_blocks(), kBlockThreads, &plan, stream);
}

absl::Status AugmentKernels::LaunchChains(const DeviceProgram* device_program,
                                          const AugmentProgram& host_program,
                                          absl::Span<const BatchTask> batches,
                                          CUstream stream) const {
  const auto has_chain = [&](bool is_image) {
    return std::any_of(
        host_program.fields, host_program.fields + host_program.num_fields,
        [&](const FieldProgram& field) {
          return field.num_steps > 0 && field.is_image == is_image;
        });
  };
  const bool has_images = has_chain(true);
  const bool has_sequences = has_chain(false);
  if (!has_images && !has_sequences) return absl::OkStatus();
  if (host_program.num_teams < 1) {
    return absl::InvalidArgumentError("a chain without scratch memory");
  }
  ChainPlan plan;
  const int64_t blocks =
      MakeChainPlan(device_program, host_program, batches.data(),
                    static_cast<int>(batches.size()), &plan);
  if (blocks == 0) return absl::OkStatus();
  const auto threads =
      static_cast<uint32_t>(ChainThreads(host_program.team_scratch_bytes));
  for (const auto& [has, kernel] :
       {std::pair(has_images, chain_), std::pair(has_sequences, sequence_)}) {
    if (!has) continue;
    DATASETD_RETURN_IF_ERROR(LaunchOne(kernel, static_cast<uint32_t>(blocks),
                                       threads, &plan, stream));
  }
  return absl::OkStatus();
}

absl::Status AugmentKernels::LaunchOne(CUfunction kernel, uint32_t num_blocks,
                                       uint32_t num_threads, void* plan,
                                       CUstream stream) const {
  void* parameters[] = {plan};
  return LoadStatus(
      context_,
      context_.api().cuLaunchKernel(kernel, num_blocks, 1, 1, num_threads, 1, 1,
                                    0, stream, parameters, nullptr),
      "cuLaunchKernel");
}

}  // namespace datasetd
