// Mappings of memory that processes share.

#ifndef DATASETD_BASE_SHARED_MAPPING_H_
#define DATASETD_BASE_SHARED_MAPPING_H_

#include <cstddef>

namespace datasetd {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Maps the first `size_bytes` of a memfd for reading and writing, with all of
// its pages, at a multiple of kHugePageBytes: huge pages of the file are then
// huge pages of the mapping. Returns MAP_FAILED and sets errno as mmap does.
// The caller unmaps it.
void* MapShared(int fd, size_t size_bytes);

// Returns whether the file keeps its size or grows: a process that maps it gets
// no SIGBUS when another one cuts it. Only memfds can be sealed.
bool IsSealedAgainstShrinking(int fd);

// Takes the memory of a memfd, a multiple of kHugePageBytes, on huge pages as
// far as the system has any: Linux 6.1, whatever
// /sys/kernel/mm/transparent_hugepage/shmem_enabled says but "deny". The rest
// of its pages are not taken.
void TakeHugePages(int fd, size_t size_bytes);

}  // namespace datasetd

#endif  // DATASETD_BASE_SHARED_MAPPING_H_
