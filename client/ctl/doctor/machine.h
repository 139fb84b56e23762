// Reads files and libraries of the machine, for the checks of doctor.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_MACHINE_H_
#define DATASETD_CLIENT_CTL_DOCTOR_MACHINE_H_

#include <dlfcn.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace datasetd::ctl {

// Empty if there is no such file.
inline std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Converts 13020 to "13.2".
inline std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// A function of a library that dlopen returned; null if it has none of the
// name.
template <typename Function>
Function* Symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_MACHINE_H_
