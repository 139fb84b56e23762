// An owned file descriptor.

#ifndef DATASETD_BASE_FILE_DESCRIPTOR_H_
#define DATASETD_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include "base/unique_handle.h"

namespace datasetd {

struct FileDescriptorTraits {
  using Handle = int;
  static constexpr Handle kNull = -1;
  static void Destroy(Handle fd) { close(fd); }
};

using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

}  // namespace datasetd

#endif  // DATASETD_BASE_FILE_DESCRIPTOR_H_
