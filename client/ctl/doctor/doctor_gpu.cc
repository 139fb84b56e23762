#include "client/ctl/doctor/doctor_gpu.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace datasetd::ctl {
namespace {

// Declarations from cuda.h and nvml.h that are used here.
constexpr int kComputeModeAttribute = 20;
constexpr int kComputeModeProhibited = 2;
constexpr int kComputeModeExclusiveProcess = 3;

template <typename Function>
Function* Symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

bool Exists(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Converts 13020 to "13.2".
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

bool IsWsl() {
  return absl::StrContains(absl::AsciiStrToLower(FirstLine("/proc/version")),
                           "microsoft");
}

// Returns the directory of the MPS control daemon.
std::string MpsDirectory() {
  const char* const named = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return named != nullptr && *named != '\0' ? named : "/tmp/nvidia-mps";
}

bool HasMps() { return Exists(MpsDirectory() + "/control"); }

void CheckMps(Findings* findings) {
  const char* const named = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (HasMps()) {
    findings->push_back(
        {Severity::kWarning, "MPS",
         absl::StrCat("this process would be a client of the server at ",
                      MpsDirectory(),
                      ": a GPU fault of one client may end all, "
                      "the daemon too; and it serves one user at a time"),
         "run the daemon as the jobs' user; if jobs must not harm each other, "
         "run without MPS; see 'MPS' in docs/operations.md"});
  } else if (named != nullptr && *named != '\0') {
    findings->push_back(
        {Severity::kFault, "MPS",
         absl::StrCat("CUDA_MPS_PIPE_DIRECTORY is ", named,
                      ", but no control daemon is there"),
         "start it (systemctl start datasetd-mps), or unset the variable"});
  } else {
    findings->push_back({Severity::kOk, "MPS", "not in use", ""});
  }
}

void MigIsUnknown(const std::string& why, Findings* findings) {
  findings->push_back({Severity::kWarning, "MIG", "not to be seen: " + why,
                       "see `nvidia-smi -L`; where it lists MIG devices, give "
                       "daemon and jobs the same one in CUDA_VISIBLE_DEVICES"});
}

// Uses NVML, because the driver API does not report MIG.
void CheckMig(int num_gpus, Findings* findings) {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    MigIsUnknown("there is no libnvidia-ml.so.1", findings);
    return;
  }
  auto* const init = Symbol<int()>(library, "nvmlInit_v2");
  auto* const get =
      Symbol<int(unsigned, void**)>(library, "nvmlDeviceGetHandleByIndex_v2");
  auto* const mode =
      Symbol<int(void*, unsigned*, unsigned*)>(library, "nvmlDeviceGetMigMode");
  auto* const count = Symbol<int(unsigned*)>(library, "nvmlDeviceGetCount_v2");
  unsigned num_devices = 0;
  if (init == nullptr || get == nullptr || mode == nullptr ||
      count == nullptr || init() != 0 || count(&num_devices) != 0) {
    MigIsUnknown("libnvidia-ml.so.1 does not answer", findings);
    return;
  }
  std::string divided;
  for (unsigned i = 0; i < num_devices; ++i) {
    void* device = nullptr;
    unsigned current = 0;
    unsigned pending = 0;
    if (get(i, &device) == 0 && mode(device, &current, &pending) == 0 &&
        current != 0) {
      absl::StrAppend(&divided, divided.empty() ? "" : ", ", "GPU ", i);
    }
  }
  if (divided.empty()) {
    findings->push_back({Severity::kOk, "MIG", "not in use", ""});
  } else {
    findings->push_back(
        {Severity::kWarning, "MIG",
         absl::StrCat(divided,
                      " is divided: memory is shared within one "
                      "instance only, and a process sees one (here ",
                      num_gpus, ")"),
         "give daemon and jobs the same instance in CUDA_VISIBLE_DEVICES"});
  }
}

// Returns the version in cuda.h, such as "13.0"; empty if there is none.
std::string ToolkitVersion(const std::string& root) {
  constexpr char kDefinition[] = "#define CUDA_VERSION ";
  std::ifstream file(root + "/include/cuda.h");
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view text = line;
    int version = 0;
    if (absl::ConsumePrefix(&text, kDefinition) &&
        absl::SimpleAtoi(text, &version)) {
      return VersionText(version);
    }
  }
  return "";
}

void CheckToolkit(Findings* findings) {
  const char* const home = std::getenv("CUDA_HOME");
  const std::string roots[] = {home == nullptr ? "" : home, "/usr/local/cuda"};
  for (const std::string& root : roots) {
    if (root.empty() || !Exists(root + "/bin/nvcc")) continue;
    char real[4096];
    const char* const path = realpath(root.c_str(), real);
    const std::string version = ToolkitVersion(root);
    findings->push_back(
        {Severity::kOk, "CUDA toolkit",
         absl::StrCat(version.empty() ? "version unknown" : version, ", in ",
                      path == nullptr ? root : std::string(path)),
         ""});
    return;
  }
  findings->push_back({Severity::kOk, "CUDA toolkit",
                       "none; only building with CUDA needs it", ""});
}

struct Driver {
  int (*init)(unsigned);
  int (*version)(int*);
  int (*count)(int*);
  int (*get)(int*, int);
  int (*name)(char*, int, int);
  int (*attribute)(int*, int, int);
  int (*error_name)(int, const char**);
};

std::string ErrorName(const Driver& driver, int error) {
  const char* name = nullptr;
  driver.error_name(error, &name);
  return name == nullptr ? absl::StrCat("error ", error) : std::string(name);
}

void CheckComputeMode(const Driver& driver, int ordinal, Findings* findings) {
  int device = 0;
  int mode = 0;
  char name[256] = "";
  if (driver.get(&device, ordinal) != 0 ||
      driver.name(name, sizeof(name), device) != 0 ||
      driver.attribute(&mode, kComputeModeAttribute, device) != 0) {
    return;
  }
  const std::string what = absl::StrCat("GPU ", ordinal, " (", name, "): ");
  const std::string fix =
      absl::StrCat("nvidia-smi -i ", ordinal, " -c DEFAULT");
  if (mode == kComputeModeProhibited) {
    findings->push_back({Severity::kFault, "compute mode",
                         what + "PROHIBITED: nobody may use it", fix});
  } else if (mode == kComputeModeExclusiveProcess && !HasMps()) {
    findings->push_back(
        {Severity::kFault, "compute mode",
         what + "EXCLUSIVE_PROCESS: daemon and job cannot both use it",
         fix + ", or run both under MPS"});
  } else {
    findings->push_back(
        {Severity::kOk, "compute mode",
         what + (mode == 0 ? "DEFAULT" : "EXCLUSIVE_PROCESS, under MPS"), ""});
  }
}

void NoDriver(const std::string& text, const std::string& fix,
              Findings* findings) {
  findings->push_back({Severity::kWarning, "GPU driver",
                       text + ": datasets can be served from host memory only",
                       fix});
}

}  // namespace

int CheckGpus(Findings* findings) {
  if (IsWsl()) {
    findings->push_back(
        {Severity::kWarning, "WSL",
         "under WSL the driver has no legacy CUDA IPC",
         "set slab_export: cuda_vmm_fd; if that fails below, too, serve from "
         "device cpu"});
  } else {
    findings->push_back({Severity::kOk, "WSL", "not in use", ""});
  }
  CheckToolkit(findings);
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    NoDriver("there is no libcuda.so.1",
             Exists("/dev/nvidiactl")
                 ? "install the driver's libraries; in a container, start it "
                   "with --gpus all"
                 : "on a machine with a GPU, install NVIDIA's driver; else set "
                   "devices: [cpu]",
             findings);
    return 0;
  }
  const Driver driver = {
      Symbol<int(unsigned)>(library, "cuInit"),
      Symbol<int(int*)>(library, "cuDriverGetVersion"),
      Symbol<int(int*)>(library, "cuDeviceGetCount"),
      Symbol<int(int*, int)>(library, "cuDeviceGet"),
      Symbol<int(char*, int, int)>(library, "cuDeviceGetName"),
      Symbol<int(int*, int, int)>(library, "cuDeviceGetAttribute"),
      Symbol<int(int, const char**)>(library, "cuGetErrorName")};
  if (driver.init == nullptr || driver.version == nullptr ||
      driver.count == nullptr || driver.get == nullptr ||
      driver.name == nullptr || driver.attribute == nullptr ||
      driver.error_name == nullptr) {
    NoDriver("libcuda.so.1 lacks functions of the driver",
             "reinstall NVIDIA's driver", findings);
    return 0;
  }
  int num_gpus = 0;
  int error = driver.init(0);
  if (error == 0) error = driver.count(&num_gpus);
  if (error != 0 || num_gpus == 0) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    NoDriver(
        absl::StrCat("the driver offers no GPU (",
                     error == 0 ? "none" : ErrorName(driver, error), ")"),
        visible != nullptr
            ? absl::StrCat("CUDA_VISIBLE_DEVICES is '", visible, "'; unset it")
            : "see `nvidia-smi` and `dmesg`; after an update of the "
              "driver restart the machine",
        findings);
    return 0;
  }
  int version = 0;
  driver.version(&version);
  const std::string kernel = FirstLine("/proc/driver/nvidia/version");
  findings->push_back(
      {Severity::kOk, "GPU driver",
       absl::StrCat("CUDA ", VersionText(version), ", ", num_gpus,
                    num_gpus == 1 ? " GPU" : " GPUs",
                    kernel.empty() ? "" : absl::StrCat("; ", kernel)),
       ""});
  for (int i = 0; i < num_gpus; ++i) CheckComputeMode(driver, i, findings);
  CheckMig(num_gpus, findings);
  CheckMps(findings);
  return num_gpus;
}

}  // namespace datasetd::ctl
