// A second process that maps exported memory, for tests of the export.
//
// The peer is the test binary itself, started again: its main must call
// RunExportPeerIfAsked first. Commands and answers are messages over a socket
// pair, the descriptor travels by SCM_RIGHTS. The peer only obeys: what bytes
// to expect is the test's business.

#ifndef DATASETD_TESTS_CONFORMANCE_EXPORT_PEER_H_
#define DATASETD_TESTS_CONFORMANCE_EXPORT_PEER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "cuda/backend/backend.h"

namespace datasetd::testing {

// Exported memory as the peer sees it. Unmapped on destruction.
class ImportedMemory {
 public:
  virtual ~ImportedMemory() = default;
  virtual absl::Status Read(size_t offset_bytes, absl::Span<uint8_t> bytes) = 0;
  virtual absl::Status Write(size_t offset_bytes,
                             absl::Span<const uint8_t> bytes) = 0;
};

// Sent to an importer beside the descriptor, which is empty for
// kCudaIpcHandle.
struct ExportDescription {
  ExportKind kind = ExportKind::kMemfd;
  size_t size_bytes = 0;
  uint8_t ipc_handle[64] = {};
};

using Importer = std::function<absl::StatusOr<std::unique_ptr<ImportedMemory>>(
    const ExportDescription& description, FileDescriptor file)>;

// The exit status of main if this process was started as a peer.
std::optional<int> RunExportPeerIfAsked(int argc, char** argv,
                                        const Importer& importer);

class ExportPeer {
 public:
  // Starts the process.
  static absl::StatusOr<std::unique_ptr<ExportPeer>> Start();
  // The process has ended on return, by SIGKILL if need be.
  ~ExportPeer();

  // The peer maps `memory`.
  absl::Status Import(const ExportedMemory& memory);
  // At most kMaxBytes at once.
  static constexpr size_t kMaxBytes = 4096;
  absl::StatusOr<std::vector<uint8_t>> Read(size_t offset_bytes,
                                            size_t size_bytes);
  absl::Status Write(size_t offset_bytes, absl::Span<const uint8_t> bytes);
  // The peer calls ftruncate on the descriptor; the errno, or 0.
  absl::StatusOr<int> Truncate(size_t size_bytes);
  // The peer calls fallocate to that size; the errno, or 0.
  absl::StatusOr<int> Extend(size_t size_bytes);

 private:
  ExportPeer(pid_t pid, FileDescriptor socket);

  const pid_t pid_;
  const FileDescriptor socket_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CONFORMANCE_EXPORT_PEER_H_
