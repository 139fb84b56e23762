// Arrays as a client sends them with ATTACH_FEED.

#ifndef DATASETD_TESTS_TESTING_SEALED_MEMORY_H_
#define DATASETD_TESTS_TESTING_SEALED_MEMORY_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/file_descriptor.h"

namespace datasetd::testing {

inline constexpr int kArraySeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// A memfd of these numbers, with these seals.
template <typename T>
FileDescriptor SealedMemory(const std::vector<T>& numbers,
                            int seals = kArraySeals) {
  FileDescriptor fd(memfd_create("array", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const size_t size_bytes = numbers.size() * sizeof(T);
  if (write(fd.get(), numbers.data(), size_bytes) !=
          static_cast<ssize_t>(size_bytes) ||
      fcntl(fd.get(), F_ADD_SEALS, seals) != 0) {
    std::abort();
  }
  return fd;
}

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_SEALED_MEMORY_H_
