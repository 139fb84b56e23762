// Records what this process does: a line for each call in a file, and findings,
// which are uses that the documents forbid but a real driver may not notice.
// Thread-safe.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_JOURNAL_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_JOURNAL_H_

#include <cuda.h>

#include <atomic>
#include <string>

namespace datasetd::emulated_driver {

class Journal {
 public:
  // Without a path, nothing is written. A file is appended to, in whole lines:
  // several processes may write the same one.
  Journal(const std::string& path, bool aborts_on_finding);

  // "PID TID cuMemAlloc_v2 = 2 CUDA_ERROR_OUT_OF_MEMORY: detail".
  void Call(const char* function, CUresult result, const std::string& detail);

  // Work of a stream failed on the device. Also on stderr.
  void Fault(CUresult result, const std::string& what);

  // Also on stderr; ends the process where the settings say so.
  void Finding(const std::string& what);

  int num_findings() const { return num_findings_; }

 private:
  void Write(const std::string& text);

  const bool aborts_on_finding_;
  int fd_ = -1;
  std::atomic<int> num_findings_ = 0;
};

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_JOURNAL_H_
