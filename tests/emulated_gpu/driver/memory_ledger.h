// Counts the memory that is taken of each device, by this process or by all
// processes that share a file. Memory of a process that died is free again. Not
// thread-safe.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_MEMORY_LEDGER_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_MEMORY_LEDGER_H_

#include <array>
#include <cstdint>
#include <string>

#include "tests/emulated_gpu/driver/settings.h"

namespace datasetd::emulated_driver {

class MemoryLedger {
 public:
  // Without a path, counts this process alone. Ends the process if the file
  // cannot be used, or too many processes use it.
  explicit MemoryLedger(const std::string& path);
  ~MemoryLedger();
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // Takes memory of a device, one of the machine's, that has `total_bytes`.
  // False if that is more than is left.
  bool Take(int device, uint64_t size_bytes, uint64_t total_bytes);
  // REQUIRES: this process took it.
  void GiveBack(int device, uint64_t size_bytes);
  // Bytes that all processes have taken.
  uint64_t TakenBytes(int device) const;

 private:
  static constexpr int kMaxProcesses = 64;
  using Entry = std::array<uint64_t, kMaxDevices>;

  bool IsAlive(int entry) const;

  int fd_ = -1;
  // The one of this process. An entry is in use while its byte is locked.
  int own_ = 0;
  // In the file, or in memory of this process.
  Entry* entries_ = nullptr;
};

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_MEMORY_LEDGER_H_
