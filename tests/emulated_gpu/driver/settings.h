// The machine that the emulated driver pretends to be, as the environment
// describes it. tests/emulated_gpu/README.md lists the variables.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_SETTINGS_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_SETTINGS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace datasetd::emulated_driver {

using Uuid = std::array<uint8_t, 16>;

inline constexpr int kMaxDevices = 8;

struct DeviceSettings {
  // The GPU's, and the MIG instance's where there is one; else both are alike.
  Uuid gpu_uuid = {};
  Uuid uuid = {};
  bool is_mig = false;
  uint64_t memory_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

struct Settings {
  std::vector<DeviceSettings> devices;
  // Indices of `devices` in the order of CUDA_VISIBLE_DEVICES.
  std::vector<int> visible;
  std::string name = "Emulated GPU";
  // 13020 is 13.2.
  int driver_version = 0;
  int num_multiprocessors = 0;
  bool has_peers = true;
  // By CUdevice_attribute.
  std::map<int, int> attributes;
  uint64_t seed = 0;
  // The longest time that an operation starts late.
  int max_delay_us = 0;
  // New memory is filled up to this size, so that nobody relies on zeros.
  size_t fill_bytes = 0;
  // Kernels may read and write pinned host memory. It is no error on a GPU, and
  // slow.
  bool kernels_use_host = false;
  std::string log_path;
  // The file of the processes that share the devices' memory; empty for none.
  std::string shared_memory_path;
  std::string faults;
  bool aborts_on_finding = false;
};

// Returns nullptr for a variable that is not set.
using ReadVariable = const char* (*)(const char* name);

// On a bad value, sets `problem` to its variable, the value and what is
// allowed.
Settings ReadSettings(ReadVariable read, std::string* problem);

// "GPU-" or "MIG-" and the UUID in the form 8-4-4-4-12.
std::string UuidText(const Uuid& uuid, bool is_mig);

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_SETTINGS_H_
