#include "client/connection/unary_call.h"

#include <chrono>

#include "absl/time/time.h"

namespace datasetd::client {

void AwaitCall(grpc::CompletionQueue* queue, grpc::ClientContext* context,
               const CallLimits& limits, grpc::Status* status) {
  const auto interval = absl::ToChronoMilliseconds(kWaitInterval);
  void* tag;
  bool is_ok;
  while (queue->AsyncNext(&tag, &is_ok,
                          std::chrono::system_clock::now() + interval) ==
         grpc::CompletionQueue::TIMEOUT) {
    if (!limits.MayGoOn()) {
      context->TryCancel();
      queue->Next(&tag, &is_ok);
      if (!status->ok()) {
        *status = {grpc::StatusCode::CANCELLED,
                   "waiting for the daemon's answer was broken off"};
      }
      break;
    }
  }
  queue->Shutdown();
  while (queue->Next(&tag, &is_ok)) {
  }
}

}  // namespace datasetd::client
