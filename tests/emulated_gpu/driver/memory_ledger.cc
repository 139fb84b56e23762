#include "tests/emulated_gpu/driver/memory_ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace datasetd::emulated_driver {
namespace {

// Behind the bytes of the entries.
constexpr off_t kWholeByte = 1 << 20;

// Locks of the open file: they end with the process, not with a thread.
bool Lock(int fd, int command, short type, off_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(fd, command, &lock) == 0;
}

// Held by one process at a time.
class WholeLock {
 public:
  explicit WholeLock(int fd) : fd_(fd) {
    if (fd_ >= 0) Lock(fd_, F_OFD_SETLKW, F_WRLCK, kWholeByte);
  }
  ~WholeLock() {
    if (fd_ >= 0) Lock(fd_, F_OFD_SETLK, F_UNLCK, kWholeByte);
  }
  WholeLock(const WholeLock&) = delete;
  WholeLock& operator=(const WholeLock&) = delete;

 private:
  const int fd_;
};

[[noreturn]] void Refuse(const std::string& path, const char* why) {
  fprintf(stderr, "emulated GPU: DATASETD_EMULATED_GPU_SHARED_MEMORY: %s: %s\n",
          path.c_str(), why);
  abort();
}

}  // namespace

MemoryLedger::MemoryLedger(const std::string& path) {
  const size_t size_bytes = kMaxProcesses * sizeof(Entry);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (!path.empty()) {
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) Refuse(path, strerror(errno));
    // For other users, whatever the umask.
    fchmod(fd_, 0666);
    if (ftruncate(fd_, static_cast<off_t>(size_bytes)) != 0) {
      Refuse(path, strerror(errno));
    }
    flags = MAP_SHARED;
  }
  void* const memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, flags, fd_, 0);
  if (memory == MAP_FAILED) Refuse(path, strerror(errno));
  entries_ = static_cast<Entry*>(memory);
  if (fd_ < 0) return;
  const WholeLock lock(fd_);
  while (!Lock(fd_, F_OFD_SETLK, F_WRLCK, own_)) {
    if (++own_ == kMaxProcesses) Refuse(path, "used by too many processes");
  }
  entries_[own_].fill(0);
}

MemoryLedger::~MemoryLedger() {
  munmap(entries_, kMaxProcesses * sizeof(Entry));
  if (fd_ >= 0) close(fd_);
}

bool MemoryLedger::IsAlive(int entry) const {
  if (entry == own_) return true;
  if (fd_ < 0) return false;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = entry;
  lock.l_len = 1;
  return fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool MemoryLedger::Take(int device, uint64_t size_bytes, uint64_t total_bytes) {
  const WholeLock lock(fd_);
  const uint64_t taken = TakenBytes(device);
  if (taken > total_bytes || size_bytes > total_bytes - taken) return false;
  entries_[own_][device] += size_bytes;
  return true;
}

void MemoryLedger::GiveBack(int device, uint64_t size_bytes) {
  const WholeLock lock(fd_);
  entries_[own_][device] -= size_bytes;
}

uint64_t MemoryLedger::TakenBytes(int device) const {
  uint64_t taken = 0;
  for (int entry = 0; entry < kMaxProcesses; ++entry) {
    if (entries_[entry][device] != 0 && IsAlive(entry)) {
      taken += entries_[entry][device];
    }
  }
  return taken;
}

}  // namespace datasetd::emulated_driver
