// For builds without the CUDA toolkit's headers.

#include "client/ctl/doctor/doctor_checks.h"

namespace datasetd::ctl {

int CheckDriver(bool /*has_mps*/, const std::string& /*kernel_module*/,
                Findings* findings) {
  findings->push_back(
      {Severity::kWarning, "GPU driver",
       "not looked at: this build has no CUDA, so datasets can be served from "
       "host memory only",
       "on a machine with a GPU, build where the CUDA toolkit is installed; "
       "else set devices: [cpu]"});
  return 0;
}

std::vector<GpuPlace> FindGpus() { return {}; }

}  // namespace datasetd::ctl
