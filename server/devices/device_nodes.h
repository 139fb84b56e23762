// Checks for NVIDIA hardware and driver nodes without using CUDA: is there a
// GPU to wait for, and may this process open the driver's nodes? Thread-safe.

#ifndef DATASETD_SERVER_DEVICES_DEVICE_NODES_H_
#define DATASETD_SERVER_DEVICES_DEVICE_NODES_H_

#include <functional>
#include <string>

namespace datasetd {

inline constexpr char kPciDirectory[] = "/sys/bus/pci/devices";

// True if the PCI bus has an NVIDIA display controller, with or without a
// driver. False if the bus cannot be read.
bool HasNvidiaGpu(const std::string& pci_directory = kPciDirectory);

// Opens and closes the file; returns 0 or errno.
int TryToOpen(const std::string& path);

// A driver node that exists but cannot be opened.
struct ForbiddenNode {
  std::string path;  // empty: there is none
  // EPERM: the service manager fixed the device list of this service at its
  // start, before the node existed. A new start may help.
  // EACCES: the node's file mode, or the mode of a directory. It does not.
  int error = 0;
};

// Returns the first node with EACCES, else the first with EPERM. `open` is as
// TryToOpen.
ForbiddenNode FindForbiddenNode(
    const std::function<int(const std::string&)>& open = TryToOpen);

// For people: the mode and the group of a node with EACCES, and what to do.
std::string DescribeMode(const std::string& path);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_DEVICE_NODES_H_
