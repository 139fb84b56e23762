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
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/doctor/machine.h"

namespace datasetd::ctl {
namespace {

bool Exists(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
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
    findings->push_back({Severity::kOk, "MPS", "not in use"});
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
    findings->push_back({Severity::kOk, "MIG", "not in use"});
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
      return CudaVersionText(version);
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
                      path == nullptr ? root : std::string(path))});
    return;
  }
  findings->push_back({Severity::kOk, "CUDA toolkit",
                       "none; only building with CUDA needs it"});
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
    findings->push_back({Severity::kOk, "WSL", "not in use"});
  }
  CheckToolkit(findings);
  const int num_gpus =
      CheckDriver(HasMps(), FirstLine("/proc/driver/nvidia/version"), findings);
  if (num_gpus == 0) return 0;
  CheckMig(num_gpus, findings);
  CheckMps(findings);
  return num_gpus;
}

}  // namespace datasetd::ctl
