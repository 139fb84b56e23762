// An owned file descriptor.

#ifndef DATASETD_CUDA_FILE_DESCRIPTOR_H_
#define DATASETD_CUDA_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include "cuda/unique_handle.h"

namespace datasetd {

struct FileDescriptorTraits {
  using Handle = int;
  static constexpr Handle kNull = -1;
  static void Destroy(Handle fd) { close(fd); }
};

using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

}  // namespace datasetd

#endif  // DATASETD_CUDA_FILE_DESCRIPTOR_H_
