// Runs a test's body in a process of its own, as each needs a driver that
// nobody has called yet, with an environment of its own.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_IN_PROCESS_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_IN_PROCESS_H_

#include <cuda.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace datasetd::emulated_driver {

// Names without DATASETD_EMULATED_GPU_, but for CUDA_VISIBLE_DEVICES. Work
// starts without delay unless MAX_DELAY_US is set.
using Environment = std::vector<std::pair<std::string, std::string>>;

// A child that runs `body` and ends. Its failed expectations are this test's.
class Process {
 public:
  Process(const Environment& environment, std::function<void()> body);
  // Waits for the end.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // By SIGKILL, which is then no failure; waits for the end.
  void Kill();

 private:
  pid_t pid_;
  bool is_killed_ = false;
};

inline void InProcess(const Environment& environment,
                      std::function<void()> body) {
  const Process process(environment, std::move(body));
}

// Two ends of a socket pair, for what goes between processes.
class Channel {
 public:
  Channel();
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // `end`, 0 or 1, is the end that this process uses.
  void Send(int end, const void* bytes, size_t size_bytes) const;
  void Receive(int end, void* bytes, size_t size_bytes) const;
  void SendDescriptor(int end, int fd) const;
  int ReceiveDescriptor(int end) const;
  // One byte each way, to take turns.
  void Signal(int end) const { Send(end, "", 1); }
  void Await(int end) const {
    char byte;
    Receive(end, &byte, 1);
  }

 private:
  int ends_[2];
};

// cuInit and the primary context of a device, current until the end.
class CurrentContext {
 public:
  explicit CurrentContext(int device = 0);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  CUcontext get() const { return context_; }

 private:
  const int device_;
  CUcontext context_ = nullptr;
};

// InProcess, with the context of the first device current.
void WithContext(const Environment& environment,
                 const std::function<void()>& body);

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_IN_PROCESS_H_
