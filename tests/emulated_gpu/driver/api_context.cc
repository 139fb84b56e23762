// Primary contexts, and the contexts of threads.

#include <cuda.h>

#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {
namespace {

bool IsContext(CUcontext context) {
  return Driver::Get().contexts.count(FromHandle(context)) > 0;
}

// "destroys and cleans up all resources": the next retain makes a new one.
void ResetPrimary(Call& call, Device& device) {
  if (device.primary == nullptr) return;
  const std::shared_ptr<Context> context = device.primary;
  device.primary = nullptr;
  Driver::Get().DestroyContext(call, *context);
  if (call.context == context.get()) call.context = nullptr;
}

}  // namespace

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuDevicePrimaryCtxRetain), kNoRule,
      [&](Call& call) -> CUresult {
        if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (!IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
        Driver& driver = Driver::Get();
        Device& retained = driver.devices[device];
        if (retained.primary == nullptr) {
          retained.primary = std::make_shared<Context>();
          retained.primary->id = driver.NewHandle();
          retained.primary->device = device;
          driver.contexts[retained.primary->id] = retained.primary;
        }
        ++retained.num_retained;
        *context = ToHandle<CUcontext>(retained.primary->id);
        return CUDA_SUCCESS;
      });
}

// "The context is automatically reset once the last reference to it is
// released."
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuDevicePrimaryCtxRelease), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (!IsDevice(device))
                               return CUDA_ERROR_INVALID_DEVICE;
                             Device& released = Driver::Get().devices[device];
                             if (released.num_retained == 0)
                               return CUDA_ERROR_INVALID_CONTEXT;
                             if (--released.num_retained == 0)
                               ResetPrimary(call, released);
                             return CUDA_SUCCESS;
                           });
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuDevicePrimaryCtxReset), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (!IsDevice(device)) {
                               return CUDA_ERROR_INVALID_DEVICE;
                             }
                             ResetPrimary(call, Driver::Get().devices[device]);
                             return CUDA_SUCCESS;
                           });
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuDevicePrimaryCtxSetFlags), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (!IsDevice(device)) {
                               return CUDA_ERROR_INVALID_DEVICE;
                             }
                             if ((flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             Driver::Get().devices[device].flags = flags;
                             return CUDA_SUCCESS;
                           });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags,
                                    int* is_active) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuDevicePrimaryCtxGetState), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (flags == nullptr || is_active == nullptr) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             if (!IsDevice(device))
                               return CUDA_ERROR_INVALID_DEVICE;
                             const Device& asked =
                                 Driver::Get().devices[device];
                             *flags = asked.flags;
                             *is_active = asked.primary == nullptr ? 0 : 1;
                             return CUDA_SUCCESS;
                           });
}

CUresult cuCtxPushCurrent(CUcontext context) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuCtxPushCurrent), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (!IsContext(context)) {
                               return CUDA_ERROR_INVALID_CONTEXT;
                             }
                             ContextStack().push_back(FromHandle(context));
                             return CUDA_SUCCESS;
                           });
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuCtxPopCurrent), kNoRule, [&](Call& call) -> CUresult {
        if (ContextStack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
        if (context != nullptr) {
          *context = ToHandle<CUcontext>(ContextStack().back());
        }
        ContextStack().pop_back();
        return CUDA_SUCCESS;
      });
}

// "If ctx is NULL, the current context is popped", else it is replaced.
CUresult cuCtxSetCurrent(CUcontext context) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuCtxSetCurrent), kNoRule,
                           [&](Call& call) -> CUresult {
                             if (context != nullptr && !IsContext(context)) {
                               return CUDA_ERROR_INVALID_CONTEXT;
                             }
                             std::vector<uint64_t>& stack = ContextStack();
                             if (!stack.empty()) stack.pop_back();
                             if (context != nullptr)
                               stack.push_back(FromHandle(context));
                             return CUDA_SUCCESS;
                           });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuCtxGetCurrent), kNoRule, [&](Call& call) -> CUresult {
        if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *context = ContextStack().empty()
                       ? nullptr
                       : ToHandle<CUcontext>(ContextStack().back());
        return CUDA_SUCCESS;
      });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuCtxGetDevice), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             if (device == nullptr) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             *device = call.context->device;
                             return CUDA_SUCCESS;
                           });
}

// CUDA Programming Guide, "Prohibited and Unhandled Operations": invalid while
// a stream of the context captures, in whichever mode.
CUresult cuCtxSynchronize(void) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuCtxSynchronize), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             Driver& driver = Driver::Get();
                             bool is_capturing = false;
                             for (const auto& stream : call.context->streams) {
                               if (stream->capture == nullptr) continue;
                               driver.Invalidate(*stream->capture);
                               is_capturing = true;
                             }
                             if (is_capturing)
                               return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                             return driver.AwaitContext(call, *call.context);
                           });
}

// Lower numbers are higher priorities.
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuCtxGetStreamPriorityRange),
                           kNeedsContext, [&](Call& call) -> CUresult {
                             if (least != nullptr) *least = 0;
                             if (greatest != nullptr) *greatest = -5;
                             return CUDA_SUCCESS;
                           });
}

// Lets the current context use the memory of `peer`; one way only.
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuCtxEnablePeerAccess), kNeedsContext,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (!IsContext(peer)) return CUDA_ERROR_INVALID_CONTEXT;
        Context& other = *driver.contexts[FromHandle(peer)];
        if (other.device == call.context->device) {
          return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (!driver.settings.has_peers) {
          return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        }
        if (!call.context->peers.insert(other.device).second) {
          return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        }
        driver.memory->SetPeerAccess(call.context->device, other.device, true);
        return CUDA_SUCCESS;
      });
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuCtxDisablePeerAccess), kNeedsContext,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        if (!IsContext(peer)) return CUDA_ERROR_INVALID_CONTEXT;
        const int other = driver.contexts[FromHandle(peer)]->device;
        if (call.context->peers.erase(other) == 0) {
          return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        }
        driver.memory->SetPeerAccess(call.context->device, other, false);
        return CUDA_SUCCESS;
      });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
