#include "cuda/driver_api.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/status.h"
#include "cuda/status_macros.h"

namespace datasetd {
namespace {

// All of these functions are at least as old, and did not change since.
constexpr unsigned int kDriverVersion = 12000;

template <typename Function>
absl::Status Get(const char* name, Function* function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  DATASETD_CUDA_RETURN_IF_ERROR(cudaGetDriverEntryPointByVersion(
      name, &address, kDriverVersion, cudaEnableDefault, &result));
#else
  DATASETD_CUDA_RETURN_IF_ERROR(
      cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || address == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("the CUDA driver has no ", name, " of version ",
                     kDriverVersion, "; install a newer driver"));
  }
  *function = reinterpret_cast<Function>(address);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DriverApi> LoadDriverApi() {
  DriverApi api;
  DATASETD_RETURN_IF_ERROR(Get("cuDeviceGet", &api.device_get));
  DATASETD_RETURN_IF_ERROR(
      Get("cuDeviceGetAttribute", &api.device_get_attribute));
  DATASETD_RETURN_IF_ERROR(Get("cuMemGetAllocationGranularity",
                               &api.mem_get_allocation_granularity));
  DATASETD_RETURN_IF_ERROR(Get("cuMemCreate", &api.mem_create));
  DATASETD_RETURN_IF_ERROR(Get("cuMemRelease", &api.mem_release));
  DATASETD_RETURN_IF_ERROR(
      Get("cuMemAddressReserve", &api.mem_address_reserve));
  DATASETD_RETURN_IF_ERROR(Get("cuMemAddressFree", &api.mem_address_free));
  DATASETD_RETURN_IF_ERROR(Get("cuMemMap", &api.mem_map));
  DATASETD_RETURN_IF_ERROR(Get("cuMemUnmap", &api.mem_unmap));
  DATASETD_RETURN_IF_ERROR(Get("cuMemSetAccess", &api.mem_set_access));
  DATASETD_RETURN_IF_ERROR(Get("cuMemExportToShareableHandle",
                               &api.mem_export_to_shareable_handle));
  DATASETD_RETURN_IF_ERROR(Get("cuMemImportFromShareableHandle",
                               &api.mem_import_from_shareable_handle));
  return api;
}

}  // namespace datasetd
