// A file descriptor that is closed in children of fork().
//
// The child handler closes every live GuardedFd, so that a connection ends with
// its owner even if a child survives. In the child the object is inert and
// closes nothing, since its number may name another file by then.
//
// Thread-compatible. A moved-from object has no descriptor. The child handler
// covers up to kMaxGuardedFds objects; others are closed by their destructor
// only.

#ifndef DATASETD_CLIENT_CONNECTION_GUARDED_FD_H_
#define DATASETD_CLIENT_CONNECTION_GUARDED_FD_H_

#include <cstdint>

namespace datasetd::client {

inline constexpr int kMaxGuardedFds = 8192;

// Returns a number that changes only in a child of fork(): an object that
// stored a different value belongs to another process. Costs one atomic load.
uint64_t ForkGeneration();

class GuardedFd {
 public:
  GuardedFd() = default;
  // Takes ownership of `fd`; -1 means none.
  explicit GuardedFd(int fd);
  GuardedFd(GuardedFd&& other) noexcept;
  GuardedFd& operator=(GuardedFd&& other) noexcept;
  ~GuardedFd() { Reset(); }

  // Returns -1 if there is none, or in a child.
  int get() const { return generation_ == ForkGeneration() ? fd_ : -1; }
  bool is_valid() const { return get() >= 0; }
  // Closes the descriptor, except in a child.
  void Reset();
  // Returns the descriptor, which this object and the child handler forget. -1
  // if there is none, or in a child.
  int Release();

 private:
  int fd_ = -1;
  int entry_ = -1;  // in the table of the child handler
  uint64_t generation_ = 0;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_GUARDED_FD_H_
