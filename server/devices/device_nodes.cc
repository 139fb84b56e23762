#include "server/devices/device_nodes.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file_descriptor.h"

namespace datasetd {
namespace {

constexpr char kNvidia[] = "0x10de";
// The first of the class's three bytes.
constexpr char kDisplayController[] = "0x03";

// Its number if it has no name.
std::string GroupName(gid_t gid) {
  std::vector<char> buffer(4096);
  group entry = {};
  group* found = nullptr;
  int error = 0;
  while ((error = getgrgid_r(gid, &entry, buffer.data(), buffer.size(),
                             &found)) == ERANGE) {
    buffer.resize(2 * buffer.size());
  }
  return error == 0 && found != nullptr ? found->gr_name : absl::StrCat(gid);
}

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

bool HasNvidiaGpu(const std::string& pci_directory) {
  std::error_code error;
  std::filesystem::directory_iterator device(pci_directory, error);
  const std::filesystem::directory_iterator end;
  while (!error && device != end) {
    if (FirstLine(device->path() / "vendor") == kNvidia &&
        absl::StartsWith(FirstLine(device->path() / "class"),
                         kDisplayController)) {
      return true;
    }
    device.increment(error);
  }
  return false;
}

int TryToOpen(const std::string& path) {
  const FileDescriptor fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  return fd.has_value() ? 0 : errno;
}

ForbiddenNode FindForbiddenNode(
    const std::function<int(const std::string&)>& open) {
  ForbiddenNode found;
  // /dev/nvidia0 is left out: opening it wakes the GPU.
  for (const char* path : {"/dev/nvidiactl", "/dev/nvidia-uvm"}) {
    const int error = open(path);
    if (error == EACCES) return {path, error};
    if (error == EPERM && found.path.empty()) found = {path, error};
  }
  return found;
}

std::string DescribeMode(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    return absl::StrCat(path, " may not be opened by this process");
  }
  const std::string group = GroupName(status.st_gid);
  return absl::StrCat(path, " may not be opened by this process: its mode is ",
                      absl::StrFormat("%04o", status.st_mode & 07777),
                      ", its group ", group,
                      "; add SupplementaryGroups=", group,
                      " to the service's unit, or the user to that group");
}

}  // namespace datasetd
