// Allocates a feed's slab, choosing how device memory is shared with the
// client.

#ifndef DATASETD_SERVER_FEED_SLAB_ALLOCATION_H_
#define DATASETD_SERVER_FEED_SLAB_ALLOCATION_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/backend/backend.h"

namespace datasetd {

// Allocates in the way that the backend likes best of those that are `allowed`
// (empty: all; the host has one, which always is), were not `excluded` by the
// client, as v1::ExportKind numbers them, and can be had. A client whose
// process has the daemon's number, each in its own PID namespace, gets no CUDA
// IPC handle: the driver takes it for the daemon.
//   UNIMPLEMENTED       none is left; names all that were tried, with reasons
//   RESOURCE_EXHAUSTED  as Backend::AllocateExported
// A device failure is returned as it is.
absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateSlab(
    Backend& backend, size_t size_bytes, absl::Span<const ExportKind> allowed,
    absl::Span<const int> excluded, bool has_daemons_pid = false);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SLAB_ALLOCATION_H_
