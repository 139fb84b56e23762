#include "tests/emulated_gpu/driver/error_plan.h"

#include <cstdio>
#include <sstream>

namespace datasetd::emulated_driver {

bool ErrorPlan::Set(const std::string& text) {
  functions_.clear();
  std::istringstream items(text);
  std::string item;
  while (std::getline(items, item, ',')) {
    char name[80];
    unsigned long long call = 0;
    int error = 0;
    char end = '\0';
    const bool repeats = sscanf(item.c_str(), "%79[^@]@%llu+=%d%c", name, &call,
                                &error, &end) == 3;
    if ((!repeats && sscanf(item.c_str(), "%79[^@]@%llu=%d%c", name, &call,
                            &error, &end) != 3) ||
        call == 0) {
      functions_.clear();
      return false;
    }
    functions_[name].faults.push_back(
        {call, repeats, static_cast<CUresult>(error)});
  }
  return true;
}

CUresult ErrorPlan::Next(const std::string& function, int device) {
  const CUresult own = Count(std::to_string(device) + "/" + function);
  const CUresult any = Count(function);
  return own == CUDA_SUCCESS ? any : own;
}

CUresult ErrorPlan::Count(const std::string& name) {
  const auto it = functions_.find(name);
  if (it == functions_.end()) return CUDA_SUCCESS;
  const uint64_t call = ++it->second.num_calls;
  for (const Fault& fault : it->second.faults) {
    if (call == fault.first_call ||
        (fault.repeats && call > fault.first_call)) {
      return fault.error;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace datasetd::emulated_driver
