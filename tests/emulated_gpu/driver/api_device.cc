// Initialisation, devices and errors.

#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/emulated_gpu/driver/attributes.h"
#include "tests/emulated_gpu/driver/driver.h"
#include "tests/emulated_gpu/driver/error_names.h"

namespace datasetd::emulated_driver {
namespace {

CUresult CopyUuid(const char* function, CUuuid* uuid, CUdevice device,
                  Uuid DeviceSettings::*which) {
  return Driver::Get().Run(function, kNoRule, [&](Call& call) -> CUresult {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
    const Uuid& bytes = Driver::Get().devices[device].settings.*which;
    memcpy(uuid->bytes, bytes.data(), bytes.size());
    return CUDA_SUCCESS;
  });
}

// Runs when the process ends.
__attribute__((destructor)) void EndProcess() { Driver::EndProcess(); }

}  // namespace

extern "C" {

CUresult cuInit(unsigned int flags) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuInit), kAnyTime,
                           [&](Call& call) -> CUresult {
                             if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
                             return Driver::Get().Init();
                           });
}

CUresult cuDriverGetVersion(int* version) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuDriverGetVersion), kAnyTime,
                           [&](Call& call) -> CUresult {
                             if (version == nullptr) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             *version = Driver::Get().settings.driver_version;
                             return CUDA_SUCCESS;
                           });
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = ErrorName(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = ErrorText(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuDeviceGetCount), kNoRule, [&](Call& call) -> CUresult {
        if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *count = static_cast<int>(Driver::Get().devices.size());
        return CUDA_SUCCESS;
      });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuDeviceGet), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (device == nullptr) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             if (!IsDevice(ordinal)) {
                               return CUDA_ERROR_INVALID_DEVICE;
                             }
                             *device = ordinal;
                             return CUDA_SUCCESS;
                           });
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuDeviceGetName), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (name == nullptr || size <= 0)
                               return CUDA_ERROR_INVALID_VALUE;
                             if (!IsDevice(device))
                               return CUDA_ERROR_INVALID_DEVICE;
                             snprintf(name, static_cast<size_t>(size), "%s",
                                      Driver::Get().settings.name.c_str());
                             return CUDA_SUCCESS;
                           });
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuDeviceTotalMem), kNoRule, [&](Call& call) -> CUresult {
        if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
        *bytes = Driver::Get().devices[device].settings.memory_bytes;
        return CUDA_SUCCESS;
      });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                              CUdevice device) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuDeviceGetAttribute), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (value == nullptr)
                               return CUDA_ERROR_INVALID_VALUE;
                             if (!IsDevice(device))
                               return CUDA_ERROR_INVALID_DEVICE;
                             const auto found = ReadAttribute(
                                 Driver::Get().settings, device, attribute);
                             if (!found.has_value())
                               return CUDA_ERROR_INVALID_VALUE;
                             *value = *found;
                             return CUDA_SUCCESS;
                           });
}

// The first version: of the GPU, also where it is divided.
#undef cuDeviceGetUuid
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return CopyUuid("cuDeviceGetUuid", uuid, device, &DeviceSettings::gpu_uuid);
}

// "If the device is in MIG mode, returns its MIG UUID."
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return CopyUuid("cuDeviceGetUuid_v2", uuid, device, &DeviceSettings::uuid);
}

CUresult cuDeviceCanAccessPeer(int* can_access, CUdevice device,
                               CUdevice peer) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuDeviceCanAccessPeer), kNoRule,
      [&](Call& call) -> CUresult {
        if (can_access == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!IsDevice(device) || !IsDevice(peer)) {
          return CUDA_ERROR_INVALID_DEVICE;
        }
        *can_access =
            device != peer && Driver::Get().settings.has_peers ? 1 : 0;
        return CUDA_SUCCESS;
      });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
