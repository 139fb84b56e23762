// The part of the doctor that looks at the machine's GPUs: driver, toolkit,
// compute mode, MIG, MPS, WSL. It asks the driver by dlopen and needs no
// toolkit.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_GPU_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_GPU_H_

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// Returns how many GPUs this process may use.
int CheckGpus(Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_GPU_H_
