// The checks of datasetctl doctor. Each adds what it finds.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CHECKS_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CHECKS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "client/connection/address.h"

namespace datasetd::ctl {

enum class Severity { kOk, kWarning, kFault };

struct Finding {
  Severity severity = Severity::kOk;
  std::string check;  // "daemon", "compute mode", ...
  std::string text;
  std::string fix;  // empty if nothing needs to be done
};

using Findings = std::vector<Finding>;

// The kernel's and glibc's versions, and whether the kernel has what the daemon
// needs of it.
void CheckSystem(Findings* findings);

// The daemon's socket: a finding for it, and one for the group. Returns true if
// it exists and this process may connect to it.
bool CheckSocket(const client::Address& address, Findings* findings);

// Compares this process with the daemon's: namespaces, and limits that it
// needs. `pid` is the daemon's own report; `serves_gpu` is true if it has a
// GPU. Returns `pid`, or 0 where that is another process here.
pid_t CheckDaemonProcess(pid_t pid, bool serves_gpu, Findings* findings);

// The memory limit of the daemon's cgroup, or of one above, and what is used of
// it without file pages, which the kernel takes back. Knows version 1 and 2.
// `root` precedes /sys and /proc.
void CheckCgroupMemory(pid_t daemon, const std::string& root,
                       Findings* findings);

// The disk of the daemon's cache. `directory` is cache.directory of the
// configuration. Empty: /var/cache/datasetd, which need not exist.
void CheckCache(const std::string& directory, Findings* findings);

// Driver, toolkit, compute mode, MIG, MPS, WSL. Returns the number of GPUs that
// this process can use.
int CheckGpus(Findings* findings);

// The driver's part of CheckGpus, which returns 0 in a build without the CUDA
// toolkit's headers. `has_mps`: an MPS server runs. `kernel_module` describes
// the driver's part in the kernel, or is empty.
int CheckDriver(bool has_mps, const std::string& kernel_module,
                Findings* findings);

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

// Which GPU reads which one's memory. Nothing is said of one GPU.
void CheckPeers(const std::vector<GpuPlace>& gpus, Findings* findings);

// Really shares memory between two processes, once per device and export kind:
// a private daemon loads a few samples, and this process reads them from its
// slab. `num_gpus` is the result of CheckGpus.
void CheckSharing(int num_gpus, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CHECKS_H_
