#include "server/devices/device_nodes.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "base/file_descriptor.h"

namespace datasetd {
namespace {

constexpr char kNvidia[] = "0x10de";
// The first of the class's three bytes.
constexpr char kDisplayController[] = "0x03";

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

std::string FindForbiddenNode(
    const std::function<int(const std::string&)>& open) {
  // /dev/nvidia0 is left out: opening it wakes the GPU.
  for (const char* path : {"/dev/nvidiactl", "/dev/nvidia-uvm"}) {
    if (open(path) == EPERM) return path;
  }
  return "";
}

}  // namespace datasetd
