// A file descriptor that a child of fork() does not keep.
//
// The child handler closes every live GuardedFd, so a connection ends with its
// owner although a child lives on. In the child the object is inert: it closes
// nothing, since its number may name another file by then.
//
// Thread-compatible. Moved-from means no descriptor. Up to kMaxGuardedFds are
// watched; one beyond that is closed by its destructor only.

#ifndef DATASETD_CLIENT_CONNECTION_GUARDED_FD_H_
#define DATASETD_CLIENT_CONNECTION_GUARDED_FD_H_

#include <cstdint>

namespace datasetd::client {

inline constexpr int kMaxGuardedFds = 8192;

// Changes in the child of a fork(), and only there. One atomic load. An object
// that remembers another value than this one belongs to another process.
uint64_t ForkGeneration();

class GuardedFd {
 public:
  GuardedFd() = default;
  // Takes ownership; -1 is none.
  explicit GuardedFd(int fd);
  GuardedFd(GuardedFd&& other) noexcept;
  GuardedFd& operator=(GuardedFd&& other) noexcept;
  ~GuardedFd() { Reset(); }

  // -1 if there is none, or in a child.
  int get() const { return generation_ == ForkGeneration() ? fd_ : -1; }
  bool is_valid() const { return get() >= 0; }
  // Closes it, if this is still the process that owns it.
  void Reset();

 private:
  int fd_ = -1;
  int entry_ = -1;  // in the table of the child handler
  uint64_t generation_ = 0;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_GUARDED_FD_H_
