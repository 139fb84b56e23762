// The pages of lists.

#ifndef DATASETD_SERVER_SERVICE_PAGE_SIZE_H_
#define DATASETD_SERVER_SERVICE_PAGE_SIZE_H_

#include <cstddef>
#include <cstdint>

namespace datasetd {

// So many that a page fits into a message, however long the names are.
inline constexpr size_t kMaxPageSize = 256;

// Of a request that asks for `wanted`; 0: as many as there may be.
inline size_t PageSize(uint32_t wanted) {
  return wanted == 0 || wanted > kMaxPageSize ? kMaxPageSize : wanted;
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_PAGE_SIZE_H_
