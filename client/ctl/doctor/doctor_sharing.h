// Doctor check that really shares memory between two processes: a private
// daemon loads a few samples, and this process reads them from its slab, once
// per device and export kind.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SHARING_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SHARING_H_

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// `num_gpus` is the result of CheckGpus.
void CheckSharing(int num_gpus, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SHARING_H_
