// Result of one check of datasetctl doctor.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_FINDING_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_FINDING_H_

#include <string>
#include <vector>

namespace datasetd::ctl {

enum class Severity { kOk, kWarning, kFault };

struct Finding {
  Severity severity = Severity::kOk;
  std::string check;  // "daemon", "compute mode", ...
  std::string text;
  std::string fix;  // empty if nothing needs to be done
};

using Findings = std::vector<Finding>;

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_FINDING_H_
