#include <fcntl.h>
#include <gnu/libc-version.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_descriptor.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/doctor/machine.h"

namespace datasetd::ctl {
namespace {

// Page-locked staging buffers of a load, plus a reserve.
constexpr uint64_t kMinMemlockBytes = 256 << 20;

// Returns "pid:[4026531836]"; empty if it cannot be read.
std::string Namespace(const std::string& process, const std::string& kind) {
  std::error_code error;
  const auto target = std::filesystem::read_symlink(
      absl::StrCat("/proc/", process, "/ns/", kind), error);
  return error ? "" : target.string();
}

bool IsDatasetd(pid_t pid) {
  return FirstLine(absl::StrCat("/proc/", pid, "/comm")) == "datasetd";
}

void CheckNamespaces(pid_t pid, Findings* findings) {
  if (!IsDatasetd(pid)) {
    findings->push_back(
        {Severity::kWarning, "namespaces",
         absl::StrCat("the daemon says that it is process ", pid,
                      ", which is another one here: it is in another PID "
                      "namespace, and legacy CUDA IPC will not work"),
         "start the container with --pid=host --ipc=host, or set "
         "slab_export: cuda_vmm_fd"});
    return;
  }
  std::string differ;
  std::string unknown;
  for (const char* kind : {"pid", "ipc", "user"}) {
    const std::string other = Namespace(absl::StrCat(pid), kind);
    if (other.empty()) {
      absl::StrAppend(&unknown, unknown.empty() ? "" : ", ", kind);
    } else if (other != Namespace("self", kind)) {
      absl::StrAppend(&differ, differ.empty() ? "" : ", ", kind);
    }
  }
  if (!differ.empty()) {
    findings->push_back(
        {Severity::kWarning, "namespaces",
         absl::StrCat("daemon and this process differ in: ", differ,
                      "; legacy CUDA IPC may not work"),
         "start the container with --pid=host --ipc=host, or set "
         "slab_export: cuda_vmm_fd"});
  } else if (!unknown.empty()) {
    findings->push_back(
        {Severity::kOk, "namespaces",
         "the daemon is to be seen from here; as another user's process it "
         "tells no more (root may ask)"});
  } else {
    findings->push_back({Severity::kOk, "namespaces",
                         "daemon and this process share PID, IPC and user"});
  }
}

// Returns the limit, UINT64_MAX if unlimited, nullopt if it cannot be read.
std::optional<uint64_t> MaxLockedBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/limits"));
  std::string line;
  while (std::getline(file, line)) {
    if (!absl::StartsWith(line, "Max locked memory")) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t bytes = UINT64_MAX;
    if (words.size() < 4 ||
        (words[3] != "unlimited" && !absl::SimpleAtoi(words[3], &bytes))) {
      break;
    }
    return bytes;
  }
  return std::nullopt;
}

Finding CheckMemlock(std::optional<uint64_t> bytes) {
  if (!bytes.has_value()) {
    return {Severity::kWarning, "memlock",
            "how much the daemon may lock is not to be seen from here",
            "ask in the daemon's PID namespace"};
  }
  if (*bytes < kMinMemlockBytes) {
    return {Severity::kWarning, "memlock",
            absl::StrCat("the daemon may lock ", *bytes,
                         " bytes; page-locked buffers may be refused"),
            "set LimitMEMLOCK=infinity in its unit, or ulimit -l unlimited"};
  }
  return {Severity::kOk, "memlock",
          *bytes == UINT64_MAX ? std::string("unlimited")
                               : absl::StrCat(*bytes, " bytes")};
}

}  // namespace

void CheckSystem(Findings* findings) {
  utsname name = {};
  uname(&name);
  const std::string text = absl::StrCat(
      "Linux ", name.release, " (5.6 or newer is needed), glibc ",
      gnu_get_libc_version(), " (the packages need 2.28 or newer)");
  // Asked for rather than compared: distributions add calls to old kernels, and
  // filters of containers take calls from new ones.
  open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  const FileDescriptor opened(
      static_cast<int>(syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how))));
  if (opened.has_value()) {
    findings->push_back({Severity::kOk, "system", text});
    return;
  }
  findings->push_back(
      {Severity::kFault, "system",
       absl::StrCat(text, "; openat2: ", std::strerror(errno),
                    ": the daemon cannot open its data roots"),
       "update the kernel to Linux 5.6; in a container, allow openat2 in its "
       "seccomp filter"});
}

pid_t CheckDaemonProcess(pid_t pid, bool serves_gpu, Findings* findings) {
  CheckNamespaces(pid, findings);
  const bool is_seen = IsDatasetd(pid);
  findings->push_back(
      serves_gpu ? CheckMemlock(is_seen ? MaxLockedBytes(pid) : std::nullopt)
                 : Finding{Severity::kOk, "memlock",
                           "a daemon without a GPU locks none"});
  return is_seen ? pid : 0;
}

}  // namespace datasetd::ctl
