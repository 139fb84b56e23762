// gRPC calls without a thread, which poll on_wait while they wait.

#ifndef DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_
#define DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "client/connection/call_limits.h"
#include "client/connection/session.h"

namespace datasetd::client {

// The completion queue of one call, of which one operation is pending at a
// time.
class CallQueue {
 public:
  CallQueue() = default;
  ~CallQueue();

  // Blocks until the pending operation has completed, and calls `on_wait` every
  // kWaitInterval meanwhile. Returns whether it succeeded.
  bool Await(absl::FunctionRef<void()> on_wait);

  grpc::CompletionQueue* get() { return &queue_; }

 private:
  grpc::CompletionQueue queue_;
};

// Calls the method that takes messages of `request`'s type. CANCELLED if
// on_wait returned false before the answer arrived.
//
// REQUIRES: a unary method whose response is of `response`'s type.
grpc::Status UnaryCall(Session* session,
                       const google::protobuf::Message& request,
                       const CallLimits& limits,
                       google::protobuf::Message* response);

// As UnaryCall, of a method that answers by a stream: calls `on_response` after
// each message, which is in `response`.
grpc::Status StreamCall(Session* session,
                        const google::protobuf::Message& request,
                        const CallLimits& limits,
                        google::protobuf::Message* response,
                        absl::FunctionRef<void()> on_response);

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_UNARY_CALL_H_
