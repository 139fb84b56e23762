// Capturing streams into graphs, and launching these.

#include <cuda.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {
namespace {

bool HasBlockingCapture(const ContextState& context) {
  return std::any_of(
      context.streams.begin(), context.streams.end(), [](const auto& stream) {
        return stream->is_blocking() && stream->capture != nullptr;
      });
}

// Every node of every stream comes before the end of the origin.
bool IsJoined(const Capture& capture) {
  return std::all_of(
      capture.streams.begin(), capture.streams.end(),
      [&capture](const auto& stream) {
        const auto own = stream->clock.find(stream.get());
        if (own == stream->clock.end() || stream == capture.origin) {
          return true;
        }
        const auto known = capture.origin->clock.find(stream.get());
        return known != capture.origin->clock.end() &&
               known->second >= own->second;
      });
}

void End(Capture& capture) {
  capture.has_ended = true;
  for (const auto& stream : capture.streams) {
    stream->capture = nullptr;
    stream->clock.clear();
  }
  capture.streams.clear();
  capture.origin = nullptr;
  std::erase_if(Driver::Get().captures, [&capture](const auto& each) {
    return each.get() == &capture;
  });
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuStreamBeginCapture), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             Driver& driver = Driver::Get();
                             const auto found = driver.FindStream(call, stream);
                             if (found == nullptr)
                               return CUDA_ERROR_INVALID_HANDLE;
                             if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                 mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
                                 mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             // "Capture may not be initiated if stream is
                             // CU_STREAM_LEGACY."
                             if (found == found->context().legacy) {
                               return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                             }
                             if (found->capture != nullptr)
                               return CUDA_ERROR_ILLEGAL_STATE;
                             auto capture = std::make_shared<Capture>();
                             capture->mode = mode;
                             capture->thread = std::this_thread::get_id();
                             capture->origin = found;
                             capture->streams.insert(found);
                             found->capture = capture;
                             driver.captures.push_back(std::move(capture));
                             return CUDA_SUCCESS;
                           });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuStreamEndCapture), kNeedsContext,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto found = driver.FindStream(call, stream);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *graph = nullptr;
        const std::shared_ptr<Capture> capture = found->capture;
        if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
        if (capture->origin != found) {
          driver.Invalidate(*capture);
          return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
        }
        if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
            capture->thread != std::this_thread::get_id()) {
          return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        }
        const bool is_joined = IsJoined(*capture);
        End(*capture);
        // "then a NULL graph will be returned".
        if (capture->is_invalidated) {
          return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        if (!is_joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        const uint64_t handle = driver.NewHandle();
        driver.graphs[handle] =
            std::make_shared<Graph>(Graph{std::move(capture->nodes)});
        *graph = ToHandle<CUgraph>(handle);
        return CUDA_SUCCESS;
      });
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuStreamIsCapturing), kNeedsContext,
      [&](Call& call) -> CUresult {
        const auto found = Driver::Get().FindStream(call, stream);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
        // "The blocking stream capture is not invalidated."
        if (found == found->context().legacy &&
            HasBlockingCapture(found->context())) {
          return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        *status = found->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
                  : found->capture->is_invalidated
                      ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        return CUDA_SUCCESS;
      });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuThreadExchangeStreamCaptureMode),
                           kNoRule, [&](Call& call) -> CUresult {
                             if (mode == nullptr ||
                                 *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
                                 *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             std::swap(ThreadCaptureMode(), *mode);
                             return CUDA_SUCCESS;
                           });
}

// Counts them; there are no handles of nodes.
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuGraphGetNodes), kNoRule,
                           [&](Call& call) -> CUresult {
                             const auto& graphs = Driver::Get().graphs;
                             const auto it = graphs.find(FromHandle(graph));
                             if (it == graphs.end() || count == nullptr) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             if (nodes != nullptr)
                               return CUDA_ERROR_NOT_SUPPORTED;
                             *count = it->second->nodes.size();
                             return CUDA_SUCCESS;
                           });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                     unsigned long long flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuGraphInstantiateWithFlags), kNeedsContext,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto it = driver.graphs.find(FromHandle(graph));
        if (executable == nullptr || it == driver.graphs.end() || flags != 0) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const uint64_t handle = driver.NewHandle();
        driver.executable_graphs[handle] = std::make_shared<Graph>(*it->second);
        *executable = ToHandle<CUgraphExec>(handle);
        return CUDA_SUCCESS;
      });
}

// The nodes run in the order of their capture.
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuGraphLaunch), kNeedsContext,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto it = driver.executable_graphs.find(FromHandle(executable));
        const auto found = driver.FindStream(call, stream);
        if (it == driver.executable_graphs.end() || found == nullptr) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        for (const Operation& node : it->second->nodes) {
          const CUresult result = driver.Enqueue(*found, node);
          if (result != CUDA_SUCCESS) return result;
        }
        return CUDA_SUCCESS;
      });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuGraphExecDestroy), kNoRule,
                           [&](Call& call) -> CUresult {
                             return Driver::Get().executable_graphs.erase(
                                        FromHandle(executable)) == 0
                                        ? CUDA_ERROR_INVALID_VALUE
                                        : CUDA_SUCCESS;
                           });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuGraphDestroy), kNoRule, [&](Call& call) -> CUresult {
        return Driver::Get().graphs.erase(FromHandle(graph)) == 0
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_SUCCESS;
      });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
