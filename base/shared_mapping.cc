#include "base/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace datasetd {
namespace {

// MADV_COLLAPSE, which the C library of Debian 12 does not name.
constexpr int kAdviceCollapse = 25;

void* MapAligned(int fd, size_t size_bytes, int flags) {
  // munmap takes whole pages.
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (size_bytes > SIZE_MAX - kHugePageBytes - page_bytes) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  const size_t used_bytes =
      (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* const reserved =
      mmap(nullptr, used_bytes + kHugePageBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  auto* const begin = static_cast<uint8_t*>(reserved);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
  void* const data = mmap(begin + before, size_bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED | flags, fd, 0);
  const int error = errno;
  if (data == MAP_FAILED) {
    munmap(begin, used_bytes + kHugePageBytes);
  } else {
    if (before > 0) munmap(begin, before);
    if (before < kHugePageBytes) {
      munmap(begin + before + used_bytes, kHugePageBytes - before);
    }
  }
  errno = error;
  return data;
}

}  // namespace

void* MapShared(int fd, size_t size_bytes) {
  return MapAligned(fd, size_bytes, MAP_POPULATE);
}

bool IsSealedAgainstShrinking(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

void TakeHugePages(int fd, size_t size_bytes) {
  // A huge page is made only where the file has a page already.
  for (size_t at = 0; at < size_bytes; at += kHugePageBytes) {
    if (fallocate(fd, 0, static_cast<off_t>(at), 1) != 0) return;
  }
  void* const data = MapAligned(fd, size_bytes, 0);
  if (data == MAP_FAILED) return;
  madvise(data, size_bytes, kAdviceCollapse);
  munmap(data, size_bytes);
}

}  // namespace datasetd
