#include "cuda/device/status.h"

#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cuda/backend/device_failure.h"
#include "cuda/device/driver_api.h"

namespace datasetd {
namespace {

absl::StatusCode CodeOf(CUresult error) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return absl::StatusCode::kUnavailable;
    case CUDA_ERROR_NOT_SUPPORTED:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string NameOf(CUresult error) {
  const DriverApi* const api = LoadedDriverApi();
  const char* name = nullptr;
  const char* text = nullptr;
  if (api == nullptr || api->cuGetErrorName(error, &name) != CUDA_SUCCESS ||
      api->cuGetErrorString(error, &text) != CUDA_SUCCESS) {
    return absl::StrCat("CUDA error ", static_cast<int>(error));
  }
  return absl::StrCat(name, " (", text, ")");
}

// "cuEventRecord" of "context.api().cuEventRecord(event.get(), stream)": the
// reasons that clients are told have a limit, and end with what to do.
absl::string_view FunctionOf(absl::string_view call) {
  for (const absl::string_view getter : {"().", "()->"}) {
    const size_t at = call.find(getter);
    if (at != absl::string_view::npos && at == call.find('(')) {
      call.remove_prefix(at + getter.size());
    }
  }
  call = call.substr(0, call.find('('));
  const size_t last = call.find_last_of(".>: ");
  return last == absl::string_view::npos ? call : call.substr(last + 1);
}

// -1: none yet. The driver is not asked: it may answer with the very error.
thread_local int current_ordinal = -1;

std::string CurrentDevice() {
  return current_ordinal < 0 ? "" : absl::StrCat("cuda:", current_ordinal);
}

bool IsShuttingDown(CUresult error) {
  return error == CUDA_ERROR_DEINITIALIZED ||
         error == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// Gives the current context a little work, on a stream of its own, and waits
// for it. Returns the first error.
CUresult Probe(const DriverApi& api) {
  CUstream stream = nullptr;
  CUresult error =
      api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0);
  if (error != CUDA_SUCCESS) return error;
  CUevent event = nullptr;
  error = api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (error == CUDA_SUCCESS) {
    error = api.cuEventRecord(event, stream);
    if (error == CUDA_SUCCESS) error = api.cuStreamSynchronize(stream);
    (void)api.cuEventDestroy(event);
  }
  (void)api.cuStreamDestroy(stream);
  return error;
}

// CUDA_ERROR_UNKNOWN says nothing of the context: a driver also refuses single
// calls with it, such as exports in sandboxes and on virtual GPUs.
bool HasEndedContext(CUresult error) {
  if (error != CUDA_ERROR_UNKNOWN) return IsSticky(error);
  const DriverApi* const api = LoadedDriverApi();
  if (api == nullptr || current_ordinal < 0) return false;
  const CUresult probed = Probe(*api);
  return probed == CUDA_ERROR_UNKNOWN || IsSticky(probed);
}

}  // namespace

void SetCurrentDevice(int ordinal) { current_ordinal = ordinal; }

bool IsSticky(CUresult error) {
  // Numbers: the oldest headers have no names for them.
  switch (static_cast<int>(error)) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case 226:  // CUDA_ERROR_CONTAINED
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case 721:  // CUDA_ERROR_TENSOR_MEMORY_LEAK
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    default:
      return false;
  }
}

absl::Status CudaStatus(CUresult error, const char* call, size_t size_bytes) {
  if (error == CUDA_SUCCESS) return absl::OkStatus();
  const std::string device = CurrentDevice();
  std::string message =
      absl::StrCat(FunctionOf(call), ": ", NameOf(error), " on ",
                   device.empty() ? "no device" : device);
  if (size_bytes > 0) absl::StrAppend(&message, ", ", size_bytes, " bytes");
  absl::Status status(CodeOf(error), message);
  return HasEndedContext(error) ? DeviceFailure(std::move(status), device)
                                : status;
}

void LogCudaError(CUresult error, const char* call) {
  if (error == CUDA_SUCCESS || IsShuttingDown(error)) return;
  const absl::Status status = CudaStatus(error, call);
  // The handler says so once; what a failed device holds is given back in vain.
  if (IsDeviceFailure(status)) return;
  std::fprintf(stderr, "datasetd: %s\n", std::string(status.message()).c_str());
}

}  // namespace datasetd
