// Doctor checks that compare this process with the daemon's: namespaces, and
// limits that it needs.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_PROCESS_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_PROCESS_H_

#include <sys/types.h>

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// `pid` is the daemon's own report; `serves_gpu` is true if it has a GPU.
// Returns `pid`, or 0 where that is another process here.
pid_t CheckDaemonProcess(pid_t pid, bool serves_gpu, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_PROCESS_H_
