// Owns a file descriptor. Moved-from and default objects own none.

#ifndef DATASETD_SERVER_CORE_SCOPED_FD_H_
#define DATASETD_SERVER_CORE_SCOPED_FD_H_

#include <unistd.h>

#include <utility>

namespace datasetd {

class ScopedFd {
 public:
  ScopedFd() = default;
  // Takes `fd`; negative is none.
  explicit ScopedFd(int fd) : fd_(fd) {}
  ScopedFd(ScopedFd&& other) noexcept : fd_(other.Release()) {}
  ScopedFd& operator=(ScopedFd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~ScopedFd() { Reset(-1); }

  bool is_valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Gives the descriptor to the caller.
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_SCOPED_FD_H_
