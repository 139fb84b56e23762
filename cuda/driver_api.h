// The functions of the CUDA driver that the runtime has no counterpart of.
// Asked for by name at run time: nothing links libcuda.

#ifndef DATASETD_CUDA_DRIVER_API_H_
#define DATASETD_CUDA_DRIVER_API_H_

#include <cuda.h>

#include "absl/status/statusor.h"

namespace datasetd {

struct DriverApi {
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDeviceGetAttribute) device_get_attribute;
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity;
  decltype(&cuMemCreate) mem_create;
  decltype(&cuMemRelease) mem_release;
  decltype(&cuMemAddressReserve) mem_address_reserve;
  decltype(&cuMemAddressFree) mem_address_free;
  decltype(&cuMemMap) mem_map;
  decltype(&cuMemUnmap) mem_unmap;
  decltype(&cuMemSetAccess) mem_set_access;
  decltype(&cuMemExportToShareableHandle) mem_export_to_shareable_handle;
  decltype(&cuMemImportFromShareableHandle) mem_import_from_shareable_handle;
};

//   UNAVAILABLE  there is no driver, or it is too old; names the function
absl::StatusOr<DriverApi> LoadDriverApi();

}  // namespace datasetd

#endif  // DATASETD_CUDA_DRIVER_API_H_
