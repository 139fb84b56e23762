#include "cuda/device/driver_api.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";
// The versions of the functions that are asked for. All are at least as old,
// and did not change since.
constexpr int kVersion = 12000;
// CUDA Compatibility, "Minor Version Compatibility": of the ptxas that made the
// kernels' machine code, by its major number.
constexpr int kKernelsVersion = DATASETD_PTXAS_VERSION / 1000 * 1000;

using GetProcAddress = decltype(&::cuGetProcAddress);

// The first driver of a major version, as people know it: " (R580)".
std::string BranchOf(int major) {
  switch (major) {
    case 12:
      return " (R525)";
    case 13:
      return " (R580)";
    default:
      return "";
  }
}

absl::Status TooOld(const std::string& what) {
  return absl::UnavailableError(
      absl::StrCat(what, "; install a driver of CUDA ",
                   CudaVersionText(kVersion), " or later, or use device cpu"));
}

template <typename Function>
absl::Status Find(GetProcAddress get, const char* name, Function* function) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult error =
      get(name, &address, kVersion, CU_GET_PROC_ADDRESS_DEFAULT, &result);
  if (error != CUDA_SUCCESS || result != CU_GET_PROC_ADDRESS_SUCCESS ||
      address == nullptr) {
    return TooOld(absl::StrCat("the CUDA driver has no ", name, " of version ",
                               kVersion));
  }
  *function = reinterpret_cast<Function>(address);
  return absl::OkStatus();
}

// The library is never closed: the driver is not made to be unloaded.
absl::StatusOr<DriverApi> Load() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA driver (", dlerror(),
                     "); install the NVIDIA driver, make it visible in the "
                     "container, or use device cpu"));
  }
  const auto get_version = reinterpret_cast<decltype(&::cuDriverGetVersion)>(
      dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != CUDA_SUCCESS) {
    return TooOld("the CUDA driver does not tell its version");
  }
  if (version < kVersion) {
    return TooOld(
        absl::StrCat("the driver is of CUDA ", CudaVersionText(version)));
  }
  const auto get =
      reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) return TooOld("the CUDA driver has no cuGetProcAddress");
  DriverApi api;
#define DATASETD_CUDA_FIND(function) \
  DATASETD_RETURN_IF_ERROR(Find(get, #function, &api.function));
  DATASETD_CUDA_FUNCTIONS(DATASETD_CUDA_FIND)
#undef DATASETD_CUDA_FIND
  api.get_whole_gpu_uuid = reinterpret_cast<decltype(api.get_whole_gpu_uuid)>(
      dlsym(library, "cuDeviceGetUuid"));
  return api;
}

std::atomic<const DriverApi*> loaded = nullptr;

}  // namespace

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string KernelsText() {
  return absl::StrCat("kernels of CUDA ",
                      CudaVersionText(DATASETD_PTXAS_VERSION));
}

std::string NeededDriverText() {
  return absl::StrCat("CUDA ", CudaVersionText(kKernelsVersion),
                      BranchOf(kKernelsVersion / 1000));
}

absl::Status CheckRunsKernels(int driver_version) {
  if (driver_version >= kKernelsVersion) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the driver is of CUDA ", CudaVersionText(driver_version),
      ", and datasetd's kernels need ", NeededDriverText(),
      ": update the driver, build datasetd with a ptxas of CUDA ",
      driver_version / 1000, " (deploy/install_deps.sh), or use device cpu"));
}

absl::Status CheckRunsKernels(const DriverApi& api) {
  int version = 0;
  if (api.cuDriverGetVersion(&version) != CUDA_SUCCESS) {
    return TooOld("the CUDA driver does not tell its version");
  }
  return CheckRunsKernels(version);
}

absl::StatusOr<const DriverApi*> GetDriverApi() {
  static std::mutex mutex;
  static DriverApi table;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded.load() == nullptr) {
    DATASETD_ASSIGN_OR_RETURN(table, Load());
    loaded.store(&table);
  }
  return loaded.load();
}

const DriverApi* LoadedDriverApi() { return loaded.load(); }

bool IsMigUuid(const DriverApi& api, CUdevice device, const CUuuid& uuid) {
  CUuuid whole;
  return api.get_whole_gpu_uuid != nullptr &&
         api.get_whole_gpu_uuid(&whole, device) == CUDA_SUCCESS &&
         memcmp(whole.bytes, uuid.bytes, sizeof(uuid.bytes)) != 0;
}

}  // namespace datasetd
