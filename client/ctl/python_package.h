// Commands of datasetctl that the Python package carries out.

#ifndef DATASETD_CLIENT_CTL_PYTHON_PACKAGE_H_
#define DATASETD_CLIENT_CTL_PYTHON_PACKAGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace datasetd::ctl {

// Becomes `python3 -m datasetd ARGUMENTS`, whose errors begin with
// "datasetctl: "; returns only if it cannot. python3 is $DATASETD_PYTHON if
// that is set; else that of PATH or Debian's, the first that finds the package
// and NumPy, or else the package. The package of a release, beside this
// program, comes first; none is taken from the working directory. `what` tells,
// in the error, what the package does: "serves the page".
//   NOT_FOUND  it finds no package `datasetd`
absl::Status ExecPythonPackage(const std::string& what,
                               const std::vector<std::string>& arguments);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PYTHON_PACKAGE_H_
