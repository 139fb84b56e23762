// Huge pages, as the kernel tells of them.

#ifndef DATASETD_TESTS_TESTING_HUGE_PAGES_H_
#define DATASETD_TESTS_TESTING_HUGE_PAGES_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace datasetd::testing {

// True if the system has huge pages for `size_bytes` of a memfd now. The size
// is a multiple of kHugePageBytes.
bool HasHugePages(size_t size_bytes);

// A number that /proc/self/smaps has for the mapping that begins at `data`,
// such as "ShmemPmdMapped", the shared memory on huge pages; in bytes. Aborts
// if there is none.
size_t MappingBytes(const void* data, absl::string_view key);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_HUGE_PAGES_H_
