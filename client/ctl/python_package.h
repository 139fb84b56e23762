// Commands of datasetctl that the Python package carries out.

#ifndef DATASETD_CLIENT_CTL_PYTHON_PACKAGE_H_
#define DATASETD_CLIENT_CTL_PYTHON_PACKAGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace datasetd::ctl {

// Becomes `python3 -m datasetd ARGUMENTS`; returns only if it cannot. `what`
// tells, in the error, what the package does: "serves the page".
//   NOT_FOUND  there is no python3, or it finds no package `datasetd`
absl::Status ExecPythonPackage(const std::string& what,
                               const std::vector<std::string>& arguments);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PYTHON_PACKAGE_H_
