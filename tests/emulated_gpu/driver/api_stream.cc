// Streams and events, and what a stream does but for copies and kernels.

#include <cuda.h>

#include <string>

#include "tests/emulated_gpu/driver/attributes.h"
#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {
namespace {

CUresult CreateStream(const char* function, CUstream* stream,
                      unsigned int flags, int priority) {
  return Driver::Get().Run(
      function, kNeedsContext, [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        if (stream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING})) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        const auto created = std::make_shared<Stream>(
            driver.scheduling, *call.context,
            (flags & CU_STREAM_NON_BLOCKING) == 0, priority);
        if (driver.holds_new_streams) created->Hold(true);
        call.context->streams.insert(created);
        const uint64_t handle = driver.NewHandle();
        driver.streams[handle] = created;
        *stream = ToHandle<CUstream>(handle);
        return CUDA_SUCCESS;
      });
}

// Waiting for a stream that captures, or asking for its state, is invalid.
CUresult CheckNotCapturing(Stream& stream) {
  Driver& driver = Driver::Get();
  if (stream.capture != nullptr) {
    driver.Invalidate(*stream.capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  ContextState& context = stream.context();
  if (&stream != context.legacy.get()) return CUDA_SUCCESS;
  for (const auto& other : context.streams) {
    if (other->is_blocking() && other->capture != nullptr) {
      driver.Invalidate(*other->capture);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<Event> FindEvent(CUevent event) {
  const auto& events = Driver::Get().events;
  const auto it = events.find(FromHandle(event));
  return it == events.end() ? nullptr : it->second;
}

CUresult CheckNotCaptured(const Event& event) {
  if (event.capture == nullptr) return CUDA_SUCCESS;
  if (!event.capture->has_ended) Driver::Get().Invalidate(*event.capture);
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult Record(const char* function, CUevent event, CUstream stream) {
  return Driver::Get().Run(
      function, kNeedsContext, [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto recorded = FindEvent(event);
        const auto found = driver.FindStream(call, stream);
        // "hEvent and hStream must be from the same context."
        if (recorded == nullptr || found == nullptr ||
            recorded->context != &found->context()) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        std::shared_ptr<Completion> completion;
        const CUresult result =
            driver.Enqueue(*found, {"event", nullptr}, &completion);
        if (result != CUDA_SUCCESS) return result;
        recorded->last = completion;
        recorded->capture = found->capture;
        recorded->clock = found->clock;
        return CUDA_SUCCESS;
      });
}

// The stream takes part in the capture that the event is of.
CUresult Join(const std::shared_ptr<Stream>& stream, const Event& event) {
  Driver& driver = Driver::Get();
  if (event.capture->is_invalidated) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (event.capture->has_ended) return CUDA_ERROR_CAPTURED_EVENT;
  if (stream == stream->context().legacy) {
    driver.Invalidate(*event.capture);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture != nullptr && stream->capture != event.capture) {
    driver.Invalidate(*stream->capture);
    driver.Invalidate(*event.capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  stream->capture = event.capture;
  event.capture->streams.insert(stream);
  for (const auto& [other, count] : event.clock) {
    uint64_t& known = stream->clock[other];
    known = std::max(known, count);
  }
  return CUDA_SUCCESS;
}

template <typename Value>
CUresult WriteValue(const char* function, CUstream stream, uint64_t address,
                    Value value, unsigned int flags) {
  return Driver::Get().Run(
      function, kNeedsContext, [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto found = driver.FindStream(call, stream);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const int device = call.context->device;
        if (sizeof(Value) == 8 &&
            ReadAttribute(driver.settings, device,
                          CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) ==
                0) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        AddressSpace& memory = driver.memory->ViewOf(device);
        if ((flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) ||
            address % sizeof(Value) != 0 ||
            memory.Translate(address, sizeof(Value), Access::kWrite,
                             &call.detail) == nullptr) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        return driver.Enqueue(
            *found, {"write", [&memory, address, value]() -> KernelOutcome {
                       std::string why;
                       uint8_t* const word = memory.Translate(
                           address, sizeof(Value), Access::kWrite, &why);
                       if (word == nullptr) {
                         return {CUDA_ERROR_ILLEGAL_ADDRESS, why};
                       }
                       __atomic_store_n(reinterpret_cast<Value*>(word), value,
                                        __ATOMIC_SEQ_CST);
                       return {};
                     }});
      });
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return CreateStream(DATASETD_SYMBOL(cuStreamCreate), stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags,
                                    int priority) {
  return CreateStream(DATASETD_SYMBOL(cuStreamCreateWithPriority), stream,
                      flags, priority);
}

// "the function will return immediately and the resources [...] will be
// released automatically once the device has completed all work".
CUresult cuStreamDestroy(CUstream stream) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuStreamDestroy), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             Driver& driver = Driver::Get();
                             const auto it =
                                 driver.streams.find(FromHandle(stream));
                             if (it == driver.streams.end())
                               return CUDA_ERROR_INVALID_HANDLE;
                             driver.DestroyStream(it->second);
                             driver.streams.erase(it);
                             return CUDA_SUCCESS;
                           });
}

CUresult cuStreamQuery(CUstream stream) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuStreamQuery), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        const auto found = Driver::Get().FindStream(call, stream);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const CUresult result = CheckNotCapturing(*found);
        if (result != CUDA_SUCCESS) return result;
        return found->is_idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
      });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuStreamSynchronize), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto found = driver.FindStream(call, stream);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        CUresult result = CheckNotCapturing(*found);
        std::shared_ptr<Completion> all;
        if (result == CUDA_SUCCESS) {
          result = driver.Enqueue(*found, {"event", nullptr}, &all);
        }
        if (result != CUDA_SUCCESS) return result;
        if (driver.Spins(found->context().device)) call.detail = "spins";
        return driver.Await(call, found->context(), {all});
      });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuStreamWaitEvent), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             Driver& driver = Driver::Get();
                             const auto found = driver.FindStream(call, stream);
                             const auto awaited = FindEvent(event);
                             if (found == nullptr || awaited == nullptr) {
                               return CUDA_ERROR_INVALID_HANDLE;
                             }
                             if (flags != CU_EVENT_WAIT_DEFAULT)
                               return CUDA_ERROR_INVALID_VALUE;
                             if (awaited->capture != nullptr)
                               return Join(found, *awaited);
                             if (found->capture != nullptr) {
                               // "A dependency would have been created which
                               // crosses the capture sequence boundary."
                               if (awaited->last == nullptr)
                                 return CUDA_SUCCESS;
                               driver.Invalidate(*found->capture);
                               return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
                             }
                             // Waits for the last record by now; no record
                             // counts as done.
                             if (awaited->last == nullptr) return CUDA_SUCCESS;
                             return driver.Enqueue(*found, {"event", nullptr},
                                                   nullptr, {awaited->last});
                           });
}

CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuStreamGetPriority), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             const auto found =
                                 Driver::Get().FindStream(call, stream);
                             if (found == nullptr)
                               return CUDA_ERROR_INVALID_HANDLE;
                             if (priority == nullptr)
                               return CUDA_ERROR_INVALID_VALUE;
                             *priority = found->priority();
                             return CUDA_SUCCESS;
                           });
}

// "Specifying any of the special handles will return the context current to
// the calling thread."
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuStreamGetCtx), kNeedsContext,
      [&](Call& call) -> CUresult {
        const auto found = Driver::Get().FindStream(call, stream);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *context = ToHandle<CUcontext>(found->context().id);
        return CUDA_SUCCESS;
      });
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuStreamGetFlags), kNeedsContext,
      [&](Call& call) -> CUresult {
        const auto found = Driver::Get().FindStream(call, stream);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *flags =
            found->is_blocking() ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
        return CUDA_SUCCESS;
      });
}

// "the function will not be called in the event of an error in the context".
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuLaunchHostFunc), kNeedsContext,
      [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto found = driver.FindStream(call, stream);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return driver.Enqueue(*found,
                              {"host", [function, argument]() -> KernelOutcome {
                                 function(argument);
                                 return {};
                               }});
      });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address,
                              cuuint32_t value, unsigned int flags) {
  return WriteValue(DATASETD_SYMBOL(cuStreamWriteValue32), stream, address,
                    value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address,
                              cuuint64_t value, unsigned int flags) {
  return WriteValue(DATASETD_SYMBOL(cuStreamWriteValue64), stream, address,
                    value, flags);
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuEventCreate), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             constexpr unsigned int kFlags =
                                 CU_EVENT_BLOCKING_SYNC |
                                 CU_EVENT_DISABLE_TIMING;
                             // Events between processes are not emulated.
                             if ((flags & CU_EVENT_INTERPROCESS) != 0) {
                               return CUDA_ERROR_NOT_SUPPORTED;
                             }
                             if (event == nullptr || (flags & ~kFlags) != 0) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             const uint64_t handle = Driver::Get().NewHandle();
                             auto created = std::make_shared<Event>();
                             created->context = call.context;
                             Driver::Get().events[handle] = std::move(created);
                             *event = ToHandle<CUevent>(handle);
                             return CUDA_SUCCESS;
                           });
}

// "An event may be destroyed before it is complete."
CUresult cuEventDestroy(CUevent event) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuEventDestroy), kNeedsContext,
      [&](Call& call) -> CUresult {
        return Driver::Get().events.erase(FromHandle(event)) == 0
                   ? CUDA_ERROR_INVALID_HANDLE
                   : CUDA_SUCCESS;
      });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return Record(DATASETD_SYMBOL(cuEventRecord), event, stream);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream,
                                unsigned int flags) {
  if (flags != CU_EVENT_RECORD_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  return Record(DATASETD_SYMBOL(cuEventRecordWithFlags), event, stream);
}

CUresult cuEventQuery(CUevent event) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuEventQuery), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        const auto found = FindEvent(event);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const CUresult result = CheckNotCaptured(*found);
        if (result != CUDA_SUCCESS) return result;
        return found->last == nullptr || found->last->is_done
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_NOT_READY;
      });
}

CUresult cuEventSynchronize(CUevent event) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuEventSynchronize), kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult {
        const auto found = FindEvent(event);
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        const CUresult result = CheckNotCaptured(*found);
        if (result != CUDA_SUCCESS) return result;
        return Driver::Get().Await(call, *found->context, {found->last});
      });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
