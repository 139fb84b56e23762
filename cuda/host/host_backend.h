// The backend without a GPU: device memory is this machine's, exported as
// memfds, and streams run on threads. Device name "cpu".
//
// A launch fills one batch and runs on one thread; launches of one stream that
// no copy separates run at once on several. Users, then their streams, share
// the threads by time (host_thread_pool.h): a launch of any length gives way
// within milliseconds. A stream holds
// HostStream::kMaxPendingWork pieces of pending work, more is
// RESOURCE_EXHAUSTED; nothing is allocated when work is submitted or run.

#ifndef DATASETD_CUDA_HOST_HOST_BACKEND_H_
#define DATASETD_CUDA_HOST_HOST_BACKEND_H_

#include <memory>

#include "cuda/backend/backend.h"

namespace datasetd {

struct HostBackendOptions {
  // Threads that run work; 0 or less is one per core that this process may use.
  int num_threads = 0;
};

std::unique_ptr<Backend> CreateHostBackend(const HostBackendOptions& options);

}  // namespace datasetd

#endif  // DATASETD_CUDA_HOST_HOST_BACKEND_H_
