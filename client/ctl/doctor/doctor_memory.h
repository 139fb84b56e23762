// Doctor checks of the host memory that the daemon may use.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_MEMORY_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_MEMORY_H_

#include <sys/types.h>

#include <string>

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// The memory limit of the daemon's cgroup, or of one above, and what is used of
// it without file pages, which the kernel takes back. Knows version 1 and 2.
// `root` precedes /sys and /proc.
void CheckCgroupMemory(pid_t daemon, const std::string& root,
                       Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_MEMORY_H_
