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

// Returns the first driver node that exists but is forbidden (EPERM); empty if
// there is none. This happens when a service manager fixes a service's device
// list at its start, before the nodes exist. `open` is as TryToOpen.
std::string FindForbiddenNode(
    const std::function<int(const std::string&)>& open = TryToOpen);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_DEVICE_NODES_H_
