#include <cuda.h>
#include <dlfcn.h>

#include "absl/strings/str_format.h"
#include "base/gpu_uuid.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/doctor/machine.h"
#include "cuda/device/driver_api.h"

namespace datasetd::ctl {
namespace {

constexpr unsigned kMaxLinks = 18;

// Uses NVML, because the driver API does not report links. 0 if it does not
// answer.
int CountLinks(const std::string& pci_address) {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  auto* const init = Symbol<int()>(library, "nvmlInit_v2");
  auto* const get = Symbol<int(const char*, void**)>(
      library, "nvmlDeviceGetHandleByPciBusId_v2");
  auto* const state = Symbol<int(void*, unsigned, unsigned*)>(
      library, "nvmlDeviceGetNvLinkState");
  void* device = nullptr;
  if (init == nullptr || get == nullptr || state == nullptr || init() != 0 ||
      get(pci_address.c_str(), &device) != 0) {
    return 0;
  }
  int count = 0;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    unsigned is_active = 0;
    if (state(device, link, &is_active) == 0 && is_active != 0) ++count;
  }
  return count;
}

}  // namespace

std::vector<GpuPlace> FindGpus() {
  const auto found = GetDriverApi();
  int count = 0;
  if (!found.ok() || (*found)->cuInit(0) != CUDA_SUCCESS ||
      (*found)->cuDeviceGetCount(&count) != CUDA_SUCCESS) {
    return {};
  }
  const DriverApi& driver = **found;
  std::vector<GpuPlace> gpus;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    CUuuid uuid = {};
    int domain = 0;
    int bus = 0;
    int slot = 0;
    if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS ||
        driver.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS ||
        driver.cuDeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
                                    device) != CUDA_SUCCESS ||
        driver.cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                    device) != CUDA_SUCCESS ||
        driver.cuDeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
                                    device) != CUDA_SUCCESS) {
      return {};
    }
    GpuPlace& gpu = gpus.emplace_back();
    gpu.name = absl::StrFormat("cuda:%d", i);
    gpu.uuid = GpuUuidText(absl::string_view(uuid.bytes, sizeof(uuid.bytes)),
                           IsMigUuid(driver, device, uuid));
    gpu.pci_address = absl::StrFormat("%04x:%02x:%02x.0", domain, bus, slot);
    gpu.num_links = CountLinks(gpu.pci_address);
    for (int j = 0; j < count; ++j) {
      CUdevice peer = 0;
      int can_access = 0;
      gpu.reads.push_back(driver.cuDeviceGet(&peer, j) == CUDA_SUCCESS &&
                          driver.cuDeviceCanAccessPeer(&can_access, device,
                                                       peer) == CUDA_SUCCESS &&
                          can_access != 0);
    }
  }
  return gpus;
}

}  // namespace datasetd::ctl
