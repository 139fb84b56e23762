// A file of this machine, mapped into memory.
//
// Where a page of a mapping cannot be read, because the disk fails or the file
// was cut, the kernel sends SIGBUS. A handler, installed with the first
// mapping, then replaces the whole mapping by zeros, and status() is an error
// from that moment on. So check status() after the bytes were read and before
// they are used for anything. Other SIGBUS signals go to the handler that was
// there before.

#ifndef DATASETD_SERVER_FILES_MAPPED_FILE_H_
#define DATASETD_SERVER_FILES_MAPPED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_descriptor.h"

namespace datasetd {

struct MappingGuard;

class MappedFile {
 public:
  // Maps the first `size_bytes` of the file. `path` is for errors; with
  // `is_writable` the bytes can be changed, and so is the file.
  //   DATA_LOSS           the file is shorter
  //   RESOURCE_EXHAUSTED  the process has too many mappings
  static absl::StatusOr<std::unique_ptr<MappedFile>> Map(FileDescriptor fd,
                                                         std::string path,
                                                         int64_t size_bytes,
                                                         bool is_writable);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  uint8_t* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

  // DATA_LOSS once a page could not be read. Thread-safe.
  absl::Status status() const;
  // True if the file has become shorter than the mapping. If it has not, a page
  // that could not be read is the disk's fault. Thread-safe.
  bool is_cut() const;
  // Lets the kernel begin to read these bytes. Does not wait. Thread-safe.
  void Prefetch(const uint8_t* data, int64_t size_bytes) const;
  // Cuts the file to `size_bytes` and flushes it to the disk. REQUIRES: it is
  // writable; nothing behind these bytes is used afterwards.
  absl::Status Finish(int64_t size_bytes) const;

 private:
  MappedFile(FileDescriptor fd, std::string path, uint8_t* data,
             int64_t size_bytes);

  const FileDescriptor fd_;
  const std::string path_;
  uint8_t* const data_;
  const int64_t size_bytes_;
  MappingGuard* const guard_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_MAPPED_FILE_H_
