// A unary gRPC call that polls on_wait while it waits, without a thread.

#ifndef DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_
#define DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "client/connection/call_limits.h"
#include "client/connection/session.h"

namespace datasetd::client {

// Blocks until the queue's only operation has completed and set `status`.
// Cancels the call if on_wait returns false.
void AwaitCall(grpc::CompletionQueue* queue, grpc::ClientContext* context,
               const CallLimits& limits, grpc::Status* status);

// Calls `method`, an Async method of Stub. CANCELLED if on_wait returned false
// before the answer arrived.
template <typename Stub, typename Request, typename Response>
grpc::Status UnaryCall(
    const Session& session, Stub* stub,
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*method)(
        grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
    const Request& request, const CallLimits& limits, Response* response) {
  grpc::ClientContext context;
  session.Prepare(&context, limits.timeout);
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto call = (stub->*method)(&context, request, &queue);
  call->Finish(response, &status, &queue);
  AwaitCall(&queue, &context, limits, &status);
  return status;
}

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_
