// Owns a file descriptor; closed on destruction. Moved-from holds none.

#ifndef DATASETD_SERVER_CORE_UNIQUE_FD_H_
#define DATASETD_SERVER_CORE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace datasetd {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_UNIQUE_FD_H_
