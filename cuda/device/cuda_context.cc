#include "cuda/device/cuda_context.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/device/cuda_backend.h"
#include "cuda/device/status.h"

namespace datasetd {

absl::StatusOr<int> CountCudaDevices() {
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  int count = 0;
  CUresult error = api->cuInit(0);
  if (error == CUDA_SUCCESS) error = api->cuDeviceGetCount(&count);
  if (error == CUDA_ERROR_NO_DEVICE || (error == CUDA_SUCCESS && count == 0)) {
    return absl::UnavailableError(
        "no CUDA device; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
        "device cpu");
  }
  if (error != CUDA_SUCCESS) {
    return absl::UnavailableError(
        absl::StrCat(CudaStatus(error, "cuInit").message(),
                     "; see nvidia-smi, or use device cpu"));
  }
  return count;
}

absl::StatusOr<std::unique_ptr<CudaContext>> CudaContext::Retain(int ordinal) {
  DATASETD_ASSIGN_OR_RETURN(const int count, CountCudaDevices());
  if (ordinal < 0 || ordinal >= count) {
    return absl::InvalidArgumentError(absl::StrCat("no device cuda:", ordinal,
                                                   "; there are ", count,
                                                   ", the first is cuda:0"));
  }
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  CUdevice device = 0;
  SetCurrentDevice(ordinal);
  DATASETD_CUDA_RETURN_IF_ERROR(api->cuDeviceGet(&device, ordinal));
  std::unique_ptr<CudaContext> context(new CudaContext(*api, ordinal, device));
  // By default a thread that waits for the device spins.
  DATASETD_CUDA_RETURN_IF_ERROR(
      api->cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC));
  DATASETD_CUDA_RETURN_IF_ERROR(
      api->cuDevicePrimaryCtxRetain(&context->context_, device));
  DATASETD_RETURN_IF_ERROR(context->MakeCurrent());
  return context;
}

void CudaContext::Release(std::unique_ptr<CudaContext> context) {
  DATASETD_CUDA_LOG_IF_ERROR(context->api_.cuCtxSetCurrent(nullptr));
  DATASETD_CUDA_LOG_IF_ERROR(
      context->api_.cuDevicePrimaryCtxRelease(context->device_));
  SetCurrentDevice(-1);
}

absl::StatusOr<bool> CudaContext::CanReachPeer(const CudaContext& peer) const {
  int can_access = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api_.cuDeviceCanAccessPeer(&can_access, device_, peer.device_));
  return can_access != 0;
}

absl::Status CudaContext::EnablePeer(const CudaContext& peer) const {
  DATASETD_ASSIGN_OR_RETURN(const bool can_reach, CanReachPeer(peer));
  if (!can_reach) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cuda:", ordinal_,
        " has no peer access to the memory of cuda:", peer.ordinal_,
        ": there is neither NVLink nor a PCIe path between them that the "
        "driver allows (nvidia-smi topo -p2p r shows which there are)"));
  }
  DATASETD_RETURN_IF_ERROR(MakeCurrent());
  const CUresult error = api_.cuCtxEnablePeerAccess(peer.context_, 0);
  if (error == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return absl::OkStatus();
  absl::Status status = CudaStatus(error, "cuCtxEnablePeerAccess");
  if (error != CUDA_ERROR_TOO_MANY_PEERS) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      "cuda:", ordinal_,
      " has no peer access to the memory of cuda:", peer.ordinal_,
      ", since it has as many peers as it can (", status.message(), ")"));
}

absl::Status CudaContext::MakeCurrent() const {
  SetCurrentDevice(ordinal_);
  DATASETD_CUDA_RETURN_IF_ERROR(api_.cuCtxSetCurrent(context_));
  return absl::OkStatus();
}

void CudaContext::MakeCurrentOrLog() const {
  SetCurrentDevice(ordinal_);
  DATASETD_CUDA_LOG_IF_ERROR(api_.cuCtxSetCurrent(context_));
}

absl::StatusOr<int> CudaContext::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api_.cuDeviceGetAttribute(&value, attribute, device_));
  return value;
}

absl::StatusOr<std::string> CudaContext::ComputeCapability() const {
  DATASETD_ASSIGN_OR_RETURN(
      const int major, Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  DATASETD_ASSIGN_OR_RETURN(
      const int minor, Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  return absl::StrCat(major, ".", minor);
}

}  // namespace datasetd
