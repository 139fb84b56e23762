#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/gpu_uuid.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/doctor/machine.h"
#include "cuda/device/driver_api.h"

namespace datasetd::ctl {
namespace {

std::string ErrorName(const DriverApi& driver, CUresult error) {
  const char* name = nullptr;
  driver.cuGetErrorName(error, &name);
  return name == nullptr ? absl::StrCat("error ", static_cast<int>(error))
                         : std::string(name);
}

void CheckComputeMode(const DriverApi& driver, int ordinal, bool has_mps,
                      Findings* findings) {
  CUdevice device = 0;
  int mode = 0;
  char name[256] = "";
  if (driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
      driver.cuDeviceGetName(name, sizeof(name), device) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
                                  device) != CUDA_SUCCESS) {
    return;
  }
  const std::string what = absl::StrCat("GPU ", ordinal, " (", name, "): ");
  CUuuid uuid = {};
  // nvidia-smi counts in another order, and all GPUs.
  const std::string which =
      driver.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS
          ? GpuUuidText(absl::string_view(uuid.bytes, sizeof(uuid.bytes)),
                        /*is_mig=*/false)
          : "UUID";
  const std::string fix = absl::StrCat("nvidia-smi -i ", which, " -c DEFAULT");
  if (mode == CU_COMPUTEMODE_PROHIBITED) {
    findings->push_back({Severity::kFault, "compute mode",
                         what + "PROHIBITED: nobody may use it", fix});
  } else if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS && !has_mps) {
    findings->push_back(
        {Severity::kFault, "compute mode",
         what + "EXCLUSIVE_PROCESS: daemon and job cannot both use it",
         fix + ", or run both under MPS"});
  } else {
    findings->push_back({Severity::kOk, "compute mode",
                         what + (mode == CU_COMPUTEMODE_DEFAULT
                                     ? "DEFAULT"
                                     : "EXCLUSIVE_PROCESS, under MPS")});
  }
}

int NoGpu(const std::string& text, const std::string& fix, Findings* findings) {
  findings->push_back({Severity::kWarning, "GPU driver",
                       text + ": datasets can be served from host memory only",
                       fix});
  return 0;
}

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

int CheckDriver(bool has_mps, const std::string& kernel_module,
                Findings* findings) {
  const absl::StatusOr<const DriverApi*> found = GetDriverApi();
  if (!found.ok()) {
    return NoGpu(std::string(found.status().message()),
                 access("/dev/nvidiactl", F_OK) == 0
                     ? "install or update the driver's libraries; in a "
                       "container, start it with --gpus all"
                     : "on a machine with a GPU, install NVIDIA's driver; else "
                       "set devices: [cpu]",
                 findings);
  }
  const DriverApi& driver = **found;
  int num_gpus = 0;
  CUresult error = driver.cuInit(0);
  if (error == CUDA_SUCCESS) error = driver.cuDeviceGetCount(&num_gpus);
  if (error != CUDA_SUCCESS || num_gpus == 0) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return NoGpu(
        absl::StrCat("the driver offers no GPU (",
                     error == CUDA_SUCCESS ? "none" : ErrorName(driver, error),
                     ")"),
        visible != nullptr
            ? absl::StrCat("CUDA_VISIBLE_DEVICES is '", visible, "'; unset it")
            : "see `nvidia-smi` and `dmesg`; after an update of the "
              "driver restart the machine",
        findings);
  }
  int version = 0;
  driver.cuDriverGetVersion(&version);
  const std::string text = absl::StrCat(
      "CUDA ", CudaVersionText(version), ", ", num_gpus,
      num_gpus == 1 ? " GPU" : " GPUs",
      kernel_module.empty() ? "" : absl::StrCat("; ", kernel_module));
  if (const absl::Status runs = CheckRunsKernels(version); runs.ok()) {
    findings->push_back(
        {Severity::kOk, "GPU driver",
         absl::StrCat(text, "; ", KernelsText(), " need a driver of ",
                      NeededDriverText(), " or newer")});
  } else {
    NoGpu(absl::StrCat(text, "; ", runs.message()),
          "update NVIDIA's driver; after it restart the machine", findings);
  }
  for (int i = 0; i < num_gpus; ++i) {
    CheckComputeMode(driver, i, has_mps, findings);
  }
  return num_gpus;
}

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
