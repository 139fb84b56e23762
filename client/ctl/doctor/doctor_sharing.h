// The part of the doctor that shares memory between two processes, really: a
// private daemon loads a few samples, and this process reads them from its
// slab, once for each device and each way of sharing.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SHARING_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SHARING_H_

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// `num_gpus` as CheckGpus returned.
void CheckSharing(int num_gpus, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SHARING_H_
