// Doctor checks of where the GPUs are: PCI address, NUMA node, links, and which
// reads which one's memory.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_TOPOLOGY_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_TOPOLOGY_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

struct GpuPlace {
  std::string name;         // "cuda:0", in this process's numbering
  std::string uuid;         // "GPU-..."
  std::string pci_address;  // "0000:3b:00.0"
  int num_links = 0;        // active NVLinks; 0 also where nobody knows
  // By ordinal: whether it reads that GPU's memory.
  std::vector<bool> reads;
};

// Looks at the driver and, for links, at NVML. Empty without GPUs, or in a
// build without the CUDA toolkit's headers.
std::vector<GpuPlace> FindGpus();

// The NUMA node of each GPU, and whether the daemon may run there. `daemon` is
// its process, or 0. `root` precedes /sys and /proc.
void CheckNodes(const std::vector<GpuPlace>& gpus, pid_t daemon,
                const std::string& root, Findings* findings);

// Nothing is said of one GPU.
void CheckPeers(const std::vector<GpuPlace>& gpus, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_TOPOLOGY_H_
