// One process's connection to a daemon: the attach connection that identifies
// the process, and the gRPC connection that came with it. Neither is made anew:
// when one ends, the session has ended.
//
// The daemon keeps the session's datasets until the session is destroyed or the
// process ends. Thread-safe. In a child of fork() every call fails, and the
// destructor does not touch the channel. The destructor of the process's last
// session waits for gRPC's shutdown, for at most 5 s, unless the program uses
// gRPC, too.

#ifndef DATASETD_CLIENT_CONNECTION_SESSION_H_
#define DATASETD_CLIENT_CONNECTION_SESSION_H_

#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/address.h"
#include "client/connection/attach_socket.h"
#include "client/connection/call_limits.h"
#include "datasetd/v1/dataset.grpc.pb.h"

namespace datasetd::client {

using AnyMethodStub = grpc::TemplatedGenericStub<google::protobuf::Message,
                                                 google::protobuf::Message>;

class Session {
 public:
  // Connects and says HELLO. Errors as AttachSocket::Connect and Receive.
  //   FAILED_PRECONDITION(kForked)  a child of a process that is connected
  static absl::StatusOr<std::unique_ptr<Session>> Connect(
      const Address& address, const CallLimits& limits);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns FAILED_PRECONDITION(kForked) in a child.
  absl::Status CheckProcess() const;

  // Sets `timeout` as the deadline unless it is infinite.
  static void Prepare(grpc::ClientContext* context, absl::Duration timeout);

  // Converts the status of a call. UNAVAILABLE becomes the daemon's GOODBYE on
  // the attach connection, or kDaemonGone. If that connection has ended, so do
  // the other codes that a call may return when its daemon or its session ends:
  // CANCELLED, UNKNOWN, INTERNAL and UNAUTHENTICATED.
  absl::Status ToStatus(const grpc::Status& status);

  // For unary calls: see UnaryCall.
  AnyMethodStub* any_method() { return &stubs_->any_method; }
  // For streams.
  v1::DatasetService::Stub* datasets() { return &stubs_->datasets; }

  // Called with every dataset that was loaded, pushed or got. HasReplicas tells
  // of the last one of a name whether it had several.
  void NoteReplicas(const v1::Dataset& dataset);
  bool HasReplicas(const std::string& dataset);

  const Address& address() const { return address_; }
  // attach::kTokenBytes bytes.
  const std::string& token() const { return token_; }

 private:
  struct Stubs {
    explicit Stubs(const std::shared_ptr<grpc::ChannelInterface>& channel)
        : any_method(channel), datasets(channel) {}
    AnyMethodStub any_method;
    v1::DatasetService::Stub datasets;
  };

  // `requests` is the gRPC connection.
  Session(Address address, AttachSocket socket, std::string token,
          GuardedFd requests);

  const Address address_;
  const std::string token_;
  const uint64_t fork_generation_;
  std::unique_ptr<Stubs> stubs_;
  bool was_refused_threads_ = false;
  // Not absl::Mutex: the destructor of Debian's takes a global lock, which may
  // be held forever in a child.
  std::mutex mutex_;
  AttachSocket socket_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> replicated_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_SESSION_H_
