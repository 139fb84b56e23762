#include "tests/emulated_gpu/driver/driver.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/emulated_gpu/driver/error_names.h"

namespace datasetd::emulated_driver {
namespace {

// Null as long as nobody has called the driver.
std::atomic<Driver*> the_driver = nullptr;

const char* ReadEnvironment(const char* name) { return getenv(name); }

void AddIfPending(const std::shared_ptr<Completion>& completion,
                  std::vector<std::shared_ptr<Completion>>* completions) {
  if (completion != nullptr && !completion->is_done) {
    completions->push_back(completion);
  }
}

void AddPending(std::vector<std::shared_ptr<Completion>>* from,
                std::vector<std::shared_ptr<Completion>>* to) {
  std::erase_if(*from, [](const auto& each) { return each->is_done; });
  to->insert(to->end(), from->begin(), from->end());
}

}  // namespace

std::vector<uint64_t>& ContextStack() {
  static thread_local std::vector<uint64_t> stack;
  return stack;
}

CUstreamCaptureMode& ThreadCaptureMode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

// Never destroyed: threads of streams may still use it when the process ends.
Driver& Driver::Get() {
  static Driver* const driver = the_driver = new Driver();
  return *driver;
}

Driver::Driver() {
  std::string problem;
  settings = ReadSettings(&ReadEnvironment, &problem);
  if (problem.empty() && !scheduling.faults.Set(settings.faults)) {
    problem = "DATASETD_EMULATED_GPU_FAULTS is '" + settings.faults +
              "', allowed: FUNCTION@CALL=ERROR or FUNCTION@CALL+=ERROR, "
              "separated by commas";
  }
  if (!problem.empty()) {
    fprintf(stderr, "emulated GPU: %s\n", problem.c_str());
    abort();
  }
  journal =
      std::make_unique<Journal>(settings.log_path, settings.aborts_on_finding);
  memory = std::make_unique<MemoryMap>(settings.kernels_use_host);
  ledger = std::make_unique<MemoryLedger>(settings.shared_memory_path);
  scheduling.seed = settings.seed;
  scheduling.max_delay_us = settings.max_delay_us;
  scheduling.journal = journal.get();
  for (const int index : settings.visible) {
    devices.push_back({.settings = settings.devices[index]});
  }
}

CUresult Driver::Init() {
  if (devices.empty()) return CUDA_ERROR_NO_DEVICE;
  pid_ = getpid();
  return CUDA_SUCCESS;
}

void Driver::EndProcess() {
  Driver* const driver = the_driver;
  if (driver == nullptr || driver->pid_ != getpid()) return;
  const std::lock_guard lock(driver->scheduling.mutex);
  driver->scheduling.is_ending = true;
  driver->is_ended_ = true;
}

CUresult Driver::CheckProcess(unsigned rules) const {
  const pid_t pid = pid_;
  // The driver does not survive fork.
  if (pid != 0 && pid != getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  if (is_ended_) return CUDA_ERROR_DEINITIALIZED;
  if ((rules & kAnyTime) != 0) return CUDA_SUCCESS;
  if (pid == 0) return CUDA_ERROR_NOT_INITIALIZED;
  // cuLaunchHostFunc: "must not make any CUDA API calls".
  if (IsInHostFunction()) {
    journal->Finding("a host function of a stream called the driver");
    return CUDA_ERROR_NOT_PERMITTED;
  }
  return CUDA_SUCCESS;
}

CUresult Driver::FindContext(unsigned rules, Call& call) {
  const std::vector<uint64_t>& stack = ContextStack();
  const auto it = stack.empty() ? contexts.end() : contexts.find(stack.back());
  const bool is_needed = (rules & kNeedsContext) != 0;
  if (it == contexts.end()) {
    return is_needed ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  }
  if (it->second->is_destroyed) {
    return is_needed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
  }
  call.context = it->second.get();
  return is_needed ? call.context->error : CUDA_SUCCESS;
}

CUresult Driver::Run(const char* function, unsigned rules,
                     const std::function<CUresult(Call&)>& body) {
  // Before the mutex, which a child may have inherited locked.
  CUresult result = CheckProcess(rules);
  if (result != CUDA_SUCCESS) {
    journal->Call(function, result, "");
    return result;
  }
  Call call;
  call.lock = std::unique_lock(scheduling.mutex);
  result = FindContext(rules, call);
  const CUresult injected = scheduling.faults.Next(
      function, call.context == nullptr ? -1 : call.context->device);
  if (injected != CUDA_SUCCESS) {
    result = injected;
    call.detail = "injected";
    if (call.context != nullptr && IsSticky(injected)) {
      call.context->error = injected;
      scheduling.changed.notify_all();
    }
  } else if (result == CUDA_SUCCESS && (rules & kUnsafeInCapture) != 0) {
    result = CheckUnsafe();
  }
  if (result == CUDA_SUCCESS) result = body(call);
  call.lock.unlock();
  journal->Call(function, result, call.detail);
  return result;
}

std::shared_ptr<Stream> Driver::LegacyStream(Context& context) {
  if (context.legacy == nullptr) {
    context.legacy = std::make_shared<Stream>(scheduling, context, true, 0);
  }
  return context.legacy;
}

std::shared_ptr<Stream> Driver::FindStream(Call& call, CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) {
    return call.context == nullptr ? nullptr : LegacyStream(*call.context);
  }
  if (stream == CU_STREAM_PER_THREAD) {
    if (call.context == nullptr) return nullptr;
    auto& own = call.context->per_thread[std::this_thread::get_id()];
    if (own == nullptr) {
      own = std::make_shared<Stream>(scheduling, *call.context, true, 0);
      call.context->streams.insert(own);
    }
    return own;
  }
  const auto it = streams.find(FromHandle(stream));
  return it == streams.end() ? nullptr : it->second;
}

// CUDA Programming Guide, "Legacy Default Stream": an operation of the legacy
// stream waits for all blocking streams, and these wait for it.
CUresult Driver::Enqueue(Stream& stream, Operation operation,
                         std::shared_ptr<Completion>* completion,
                         std::vector<std::shared_ptr<Completion>> waits) {
  ContextState& context = stream.context();
  if (context.error != CUDA_SUCCESS) return context.error;
  if (context.is_destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (stream.capture != nullptr) {
    Capture& capture = *stream.capture;
    if (capture.is_invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture.nodes.push_back(std::move(operation));
    ++stream.clock[&stream];
    return CUDA_SUCCESS;
  }
  if (&stream == context.legacy.get()) {
    bool is_captured = false;
    for (const auto& other : context.streams) {
      if (!other->is_blocking()) continue;
      if (other->capture != nullptr) {
        // CUDA Programming Guide, "Prohibited and Unhandled Operations".
        Invalidate(*other->capture);
        is_captured = true;
      }
      AddIfPending(other->last(), &waits);
    }
    if (is_captured) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    AddPending(&context.blocking_leftovers, &waits);
  } else if (stream.is_blocking() && context.legacy != nullptr) {
    AddIfPending(context.legacy->last(), &waits);
  }
  const auto given = stream.Give(std::move(operation), std::move(waits));
  if (completion != nullptr) *completion = given;
  return CUDA_SUCCESS;
}

CUresult Driver::Await(
    Call& call, const ContextState& context,
    const std::vector<std::shared_ptr<Completion>>& completions) {
  scheduling.changed.wait(call.lock, [&] {
    return context.error != CUDA_SUCCESS || context.is_destroyed ||
           std::all_of(completions.begin(), completions.end(),
                       [](const auto& each) {
                         return each == nullptr || each->is_done;
                       });
  });
  return context.is_destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context.error;
}

CUresult Driver::AwaitContext(Call& call, Context& context) {
  std::vector<std::shared_ptr<Completion>> pending;
  for (const auto& stream : context.streams) {
    AddIfPending(stream->last(), &pending);
  }
  if (context.legacy != nullptr) {
    AddIfPending(context.legacy->last(), &pending);
  }
  AddPending(&context.blocking_leftovers, &pending);
  AddPending(&context.leftovers, &pending);
  return Await(call, context, pending);
}

bool Driver::HasWork(const Context& context) const {
  const auto is_pending = [](const auto& each) { return !each->is_done; };
  return std::any_of(context.streams.begin(), context.streams.end(),
                     [](const auto& each) { return !each->is_idle(); }) ||
         (context.legacy != nullptr && !context.legacy->is_idle()) ||
         std::any_of(context.blocking_leftovers.begin(),
                     context.blocking_leftovers.end(), is_pending) ||
         std::any_of(context.leftovers.begin(), context.leftovers.end(),
                     is_pending);
}

CUresult Driver::CheckUnsafe() {
  const CUstreamCaptureMode mode = ThreadCaptureMode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  bool is_prohibited = false;
  for (const auto& capture : captures) {
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    const bool is_own = capture->thread == std::this_thread::get_id();
    if (is_own || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                   capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
      Invalidate(*capture);
      is_prohibited = true;
    }
  }
  return is_prohibited ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

void Driver::Invalidate(Capture& capture) { capture.is_invalidated = true; }

bool Driver::HasCapture(const Context& context) const {
  return std::any_of(
      context.streams.begin(), context.streams.end(),
      [](const auto& stream) { return stream->capture != nullptr; });
}

bool Driver::Charge(int device, uint64_t size_bytes) {
  return ledger->Take(settings.visible[device], size_bytes,
                      devices[device].settings.memory_bytes);
}

void Driver::Discharge(int device, uint64_t size_bytes) {
  ledger->GiveBack(settings.visible[device], size_bytes);
}

uint64_t Driver::FreeBytes(int device) const {
  const uint64_t total = devices[device].settings.memory_bytes;
  return total - std::min(total, ledger->TakenBytes(settings.visible[device]));
}

void Driver::FreeAllocation(Context& context, uint64_t address) {
  const auto it = context.allocations.find(address);
  const std::shared_ptr<Block> block = it->second;
  context.allocations.erase(it);
  memory->Erase(address);
  if (--block->num_allocations > 0) return;
  if (context.open_block == block) context.open_block = nullptr;
  if (block->is_exported && block->backing->IsInUseElsewhere()) {
    journal->Finding(
        "cuMemFree of memory that another process has open by "
        "cuIpcOpenMemHandle: undefined behavior");
    // A process that still reads it must not find the old bytes.
    std::fill_n(
        reinterpret_cast<uint8_t*>(block->range.alias),
        std::min<uint64_t>(block->backing->size_bytes(), settings.fill_bytes),
        uint8_t{0xdd});
  }
  UnmapAlias(block->range.alias, block->backing->size_bytes());
  Discharge(context.device, block->backing->size_bytes());
}

void Driver::CloseOpened(uint64_t address) {
  const Opened& closed = opened.at(address);
  memory->Erase(closed.range.device);
  UnmapAlias(closed.range.alias, closed.backing->size_bytes());
  opened.erase(address);
}

void Driver::DropAllocation(uint64_t handle) {
  const auto it = allocations.find(handle);
  const Allocation& allocation = it->second;
  if (allocation.num_handles > 0 || allocation.num_mappings > 0) return;
  Discharge(allocation.device, allocation.charged_bytes);
  allocations.erase(it);
}

void Driver::DestroyStream(const std::shared_ptr<Stream>& stream) {
  ContextState& context = stream->context();
  if (stream->capture != nullptr) {
    Invalidate(*stream->capture);
    stream->capture->streams.erase(stream);
    stream->capture = nullptr;
  }
  if (!stream->is_idle()) {
    (stream->is_blocking() ? context.blocking_leftovers : context.leftovers)
        .push_back(stream->last());
  }
  stream->End();
  context.streams.erase(stream);
}

void Driver::DestroyContext(Call& call, Context& context) {
  context.is_destroyed = true;
  scheduling.changed.notify_all();
  std::vector<std::shared_ptr<Stream>> ending(context.streams.begin(),
                                              context.streams.end());
  if (context.legacy != nullptr) ending.push_back(context.legacy);
  scheduling.changed.wait(call.lock, [&ending] {
    return std::all_of(ending.begin(), ending.end(),
                       [](const auto& stream) { return stream->is_idle(); });
  });
  for (const auto& stream : ending) DestroyStream(stream);
  context.per_thread.clear();
  context.legacy = nullptr;
  std::erase_if(streams, [&context](const auto& each) {
    return &each.second->context() == &context;
  });
  std::erase_if(events, [&context](const auto& each) {
    return each.second->context == &context;
  });
  std::erase_if(functions, [&context](const auto& each) {
    return each.second->module->context == &context;
  });
  std::erase_if(modules, [&context](const auto& each) {
    return each.second->context == &context;
  });
  while (!context.allocations.empty()) {
    FreeAllocation(context, context.allocations.begin()->first);
  }
  std::vector<uint64_t> left_open;
  for (const auto& [address, each] : opened) {
    if (each.context == context.id) left_open.push_back(address);
  }
  for (const uint64_t address : left_open) CloseOpened(address);
  for (const Region& region : memory->RegionsOf(context.id)) {
    memory->Erase(region.address);
    if (region.kind == RegionKind::kHostAlloc) {
      UnmapForHost(region.address, region.size_bytes);
    }
  }
  for (const int peer : context.peers) {
    memory->SetPeerAccess(context.device, peer, false);
  }
  Discharge(context.device, context.local_memory_bytes);
}

int Driver::VisibleDevice(const Uuid& uuid) const {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].settings.uuid == uuid) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace datasetd::emulated_driver
