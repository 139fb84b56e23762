// The memory of a feed's slots, imported into this process.
//
// Move-only; the destructor unmaps. REQUIRES at destruction: neither CPU nor
// device uses the memory any more.

#ifndef DATASETD_CLIENT_FEED_SLAB_H_
#define DATASETD_CLIENT_FEED_SLAB_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/device/cuda_driver.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd::client {

class Slab {
 public:
  Slab() = default;
  // Borrows `fd`, the descriptor received with the lease, or -1.
  //   FAILED_PRECONDITION  the GPU is not visible in this process
  //   UNAVAILABLE, UNIMPLEMENTED  no CUDA here
  //   INTERNAL             a driver call failed, or the export is malformed
  static absl::StatusOr<Slab> Import(const v1::SlabExport& slab, int fd);
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;
  ~Slab();

  char* data() const { return static_cast<char*>(data_); }
  // Null on the host.
  CudaDriver* cuda() const { return cuda_.get(); }

 private:
  std::unique_ptr<CudaDriver> cuda_;
  v1::ExportKind kind_ = v1::EXPORT_KIND_UNSPECIFIED;
  void* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_SLAB_H_
