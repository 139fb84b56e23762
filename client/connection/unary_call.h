// A unary gRPC call that polls on_wait while it waits, without a thread.
//
// A daemon lets a user have so many calls at a time and refuses the next one at
// once. Many feeds of one user may call at the same moment, so a refused call
// is made again until its time is over.

#ifndef DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_
#define DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/time/time.h"
#include "client/connection/call_limits.h"
#include "client/connection/session.h"

namespace datasetd::client {

// Blocks until the queue's only operation has completed and set `status`.
// Cancels the call if on_wait returns false.
void AwaitCall(grpc::CompletionQueue* queue, grpc::ClientContext* context,
               const CallLimits& limits, grpc::Status* status);

// The time of one call, over all its attempts.
class CallAttempts {
 public:
  // `limits` outlives it.
  explicit CallAttempts(const CallLimits& limits);

  absl::Duration remaining() const;
  // Whether the daemon refused the call for the moment and there is time for
  // another attempt; pauses before it returns true. CANCELLED in `status` if
  // on_wait returned false.
  bool ShouldRetry(grpc::Status* status);

 private:
  const CallLimits& limits_;
  const absl::Time deadline_;
  absl::Duration pause_;
};

// Calls `method`, an Async method of Stub. CANCELLED if on_wait returned false
// before the answer arrived; RESOURCE_EXHAUSTED if the user had too many calls
// all the time.
template <typename Stub, typename Request, typename Response>
grpc::Status UnaryCall(
    const Session& session, Stub* stub,
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*method)(
        grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
    const Request& request, const CallLimits& limits, Response* response) {
  CallAttempts attempts(limits);
  grpc::Status status;
  do {
    grpc::ClientContext context;
    session.Prepare(&context, attempts.remaining());
    grpc::CompletionQueue queue;
    const auto call = (stub->*method)(&context, request, &queue);
    call->Finish(response, &status, &queue);
    AwaitCall(&queue, &context, limits, &status);
  } while (attempts.ShouldRetry(&status));
  return status;
}

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_
