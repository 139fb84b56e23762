// The daemon's side of a datasetd-hdf5 process that reads one file; see
// hdf5_wire.h.
//
// Kills the process on destruction. Not thread-safe, but not bound to a thread.

#ifndef DATASETD_SERVER_READERS_HDF5_HDF5_PROCESS_H_
#define DATASETD_SERVER_READERS_HDF5_HDF5_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "server/files/random_access_file.h"
#include "server/readers/hdf5/hdf5_wire.h"

namespace datasetd {

class Hdf5Process {
 public:
  // Starts $DATASETD_HDF5_WORKER, or datasetd-hdf5 from the daemon's own
  // directory.
  //   FAILED_PRECONDITION  the program does not exist
  static absl::StatusOr<std::unique_ptr<Hdf5Process>> Start(
      std::unique_ptr<RandomAccessFile> file);
  ~Hdf5Process();
  Hdf5Process(const Hdf5Process&) = delete;
  Hdf5Process& operator=(const Hdf5Process&) = delete;

  const FileInfo& info() const { return file_->info(); }

  // Returns the text of kInfo. Errors name the file: INVALID_ARGUMENT or
  // DATA_LOSS from the library; DATA_LOSS also if the process died or was
  // silent for a minute.
  absl::StatusOr<std::string> Open(const std::string& fields);

  // Fills `buffer` with rows of a field.
  absl::Status ReadRows(uint64_t field, uint64_t first, uint64_t count,
                        absl::Span<uint8_t> buffer);

 private:
  Hdf5Process(std::unique_ptr<RandomAccessFile> file, FileDescriptor socket,
              pid_t pid)
      : file_(std::move(file)), socket_(std::move(socket)), pid_(pid) {}

  // Serves the worker's kNeed requests until it answers with `kind`; returns
  // the answer's size.
  absl::StatusOr<uint64_t> AwaitAnswer(hdf5::Kind kind);
  absl::Status ServeNeed();
  absl::Status Failed(const absl::Status& why);

  const std::unique_ptr<RandomAccessFile> file_;
  const FileDescriptor socket_;
  pid_t pid_;
  // The error of the disk while it was read for the worker.
  absl::Status disk_error_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_HDF5_HDF5_PROCESS_H_
