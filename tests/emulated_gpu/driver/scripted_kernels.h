// Kernels for tests of the driver alone: a test says what each of them does.
// Stands in for the PTX executor.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_SCRIPTED_KERNELS_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_SCRIPTED_KERNELS_H_

#include <functional>
#include <string>

#include "tests/emulated_gpu/driver/kernel_engine.h"

namespace datasetd::emulated_driver {

using ScriptedKernel = std::function<KernelOutcome(
    const KernelLaunch&, emulated_gpu::AddressSpace&)>;

// REQUIRES: before the module is loaded.
void AddScriptedKernel(const KernelInfo& info, ScriptedKernel kernel);

// PTX text for cuModuleLoadData: a module of all scripted kernels.
std::string ScriptedPtx(const std::string& version = "8.0",
                        const std::string& target = "sm_90");

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_SCRIPTED_KERNELS_H_
