// Page sizes of list requests.

#ifndef DATASETD_SERVER_SERVICE_PAGE_SIZE_H_
#define DATASETD_SERVER_SERVICE_PAGE_SIZE_H_

#include <cstddef>
#include <cstdint>

namespace datasetd {

// A page of this size fits in one message, however long the names are.
inline constexpr size_t kMaxPageSize = 256;

// The page size for a request of `wanted` items; 0: the maximum.
inline size_t PageSize(uint32_t wanted) {
  return wanted == 0 || wanted > kMaxPageSize ? kMaxPageSize : wanted;
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_PAGE_SIZE_H_
