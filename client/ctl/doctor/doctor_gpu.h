// Doctor checks of the GPUs: driver, toolkit, compute mode, MIG, MPS, WSL.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_GPU_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_GPU_H_

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// Returns the number of GPUs that this process can use.
int CheckGpus(Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_GPU_H_
