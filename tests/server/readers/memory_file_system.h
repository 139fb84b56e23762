// A FileSystem of files in memory, that can be made to fail.
//
// Directories are what paths imply. Not thread-safe while it is changed.

#ifndef DATASETD_TESTS_SERVER_READERS_MEMORY_FILE_SYSTEM_H_
#define DATASETD_TESTS_SERVER_READERS_MEMORY_FILE_SYSTEM_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/files/file_system.h"

namespace datasetd::testing {

class MemoryFileSystem : public FileSystem {
 public:
  // Files opened before see the change too. Each write has a time of its own.
  void Write(const std::string& path, std::string content) {
    contents_[path] = std::move(content);
    times_[path] = ++num_writes_;
    sparse_bytes_.erase(path);
  }
  // A file that ends with zeros, which take no memory.
  void WriteSparse(const std::string& path, std::string content,
                   int64_t size_bytes) {
    Write(path, std::move(content));
    sparse_bytes_[path] = size_bytes;
  }
  const std::map<std::string, std::string>& contents() const {
    return contents_;
  }
  int64_t total_bytes() const;
  int num_open_files() const { return *num_open_; }
  // Bytes that all reads returned together.
  int64_t num_read_bytes() const { return *num_read_bytes_; }

  // The reads after the next `count` fail with UNAVAILABLE; negative: none
  // does.
  void FailReadsAfter(int64_t count) { reads_left_ = count; }
  bool has_failed() const { return has_failed_; }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path) const override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) const override;
  absl::StatusOr<std::vector<FileInfo>> List(const std::string& directory,
                                             OnEntry on_entry) const override;

 private:
  class File;

  int64_t SizeOf(const std::string& path) const;

  std::map<std::string, std::string> contents_;
  std::map<std::string, int64_t> times_;
  std::map<std::string, int64_t> sparse_bytes_;
  int64_t num_writes_ = 0;
  std::shared_ptr<std::atomic<int>> num_open_ =
      std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<std::atomic<int64_t>> num_read_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
  mutable int64_t reads_left_ = -1;
  mutable bool has_failed_ = false;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_SERVER_READERS_MEMORY_FILE_SYSTEM_H_
