// A host memory buffer with the alignment that kernels need. Not initialised.

#ifndef DATASETD_SERVER_FILES_ALIGNED_BUFFER_H_
#define DATASETD_SERVER_FILES_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/require.h"

namespace datasetd {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 256;

  // Loses the contents when it grows.
  void Reserve(size_t size_bytes) {
    if (size_bytes <= size_bytes_) return;
    size_bytes_ = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset();
    data_.reset(
        static_cast<uint8_t*>(std::aligned_alloc(kAlignment, size_bytes_)));
    Require(data_ != nullptr, "there is memory for one more sample");
  }
  // Frees the memory if it is larger than this.
  void ShrinkTo(size_t size_bytes) {
    if (size_bytes_ <= size_bytes) return;
    size_bytes_ = 0;
    data_.reset();
  }
  uint8_t* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(uint8_t* data) const { std::free(data); }
  };
  size_t size_bytes_ = 0;
  std::unique_ptr<uint8_t, Free> data_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_ALIGNED_BUFFER_H_
