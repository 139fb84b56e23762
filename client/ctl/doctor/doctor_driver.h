// Doctor checks of the CUDA driver and of each GPU's compute mode.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_DRIVER_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_DRIVER_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "client/ctl/doctor/doctor_checks.h"

namespace datasetd::ctl {

// Converts 13020 to "13.2".
inline std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// Returns the number of GPUs that this process can use: 0 in a build without
// the CUDA toolkit's headers. `has_mps`: an MPS server runs. `kernel_module`
// describes the driver's part in the kernel, or is empty.
int CheckDriver(bool has_mps, const std::string& kernel_module,
                Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_DRIVER_H_
