// What the machine shows of NVIDIA's driver before CUDA is asked: whether it
// has a GPU to wait for, and whether this process may open the driver's nodes.
//
// Thread-safe.

#ifndef DATASETD_SERVER_DEVICES_DEVICE_NODES_H_
#define DATASETD_SERVER_DEVICES_DEVICE_NODES_H_

#include <functional>
#include <string>

namespace datasetd {

inline constexpr char kPciDirectory[] = "/sys/bus/pci/devices";

// Whether a display controller of NVIDIA's is on the PCI bus, with a driver or
// without. False where the bus cannot be read.
bool HasNvidiaGpu(const std::string& pci_directory = kPciDirectory);

// Opens and closes the file; 0 or errno.
int TryToOpen(const std::string& path);

// The first of the driver's nodes that is there and is forbidden (EPERM): a
// service manager lists the devices of a service when it starts it, and leaves
// out those that are not there yet. Empty if there is none. `open` is as
// TryToOpen.
std::string FindForbiddenNode(
    const std::function<int(const std::string&)>& open = TryToOpen);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_DEVICE_NODES_H_
