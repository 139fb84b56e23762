// Errors to answer with: "cuMemCreate@2=801,cuMemAlloc_v2@1+=2" lets the second
// cuMemCreate of the process return 801, and every cuMemAlloc_v2 return 2.
// "kernel", "copy" and "write" name work on the device, which then fails when
// its stream gets there. "1/kernel@2=700" counts those of device 1 alone. Not
// thread-safe.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_ERROR_PLAN_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_ERROR_PLAN_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace datasetd::emulated_driver {

class ErrorPlan {
 public:
  // Replaces the plan and counts anew. False for a text that is not of the
  // form; the plan is then empty.
  bool Set(const std::string& text);

  // Counts the call, and returns what it is to fail with, or CUDA_SUCCESS.
  // `device` is -1 without a context.
  CUresult Next(const std::string& function, int device = -1);

 private:
  struct Fault {
    uint64_t first_call;
    bool repeats;
    CUresult error;
  };
  struct Function {
    uint64_t num_calls = 0;
    std::vector<Fault> faults;
  };

  CUresult Count(const std::string& name);

  // Only the functions that the plan names.
  std::map<std::string, Function> functions_;
};

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_ERROR_PLAN_H_
