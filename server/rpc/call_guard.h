// A gRPC interceptor that counts the running calls of each user, and ends calls
// whose client does not read or write. Applies to all services and methods.
// Thread-safe.

#ifndef DATASETD_SERVER_RPC_CALL_GUARD_H_
#define DATASETD_SERVER_RPC_CALL_GUARD_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/attach/session_table.h"

namespace datasetd {

class CallGuard {
 public:
  struct Options {
    // Time limits for a client to take a response, and to send the next message
    // of a stream.
    absl::Duration send_timeout;
    absl::Duration receive_timeout;
  };

  // Both pointers outlive the guard.
  CallGuard(const Options& options, const SessionTable* sessions,
            const Clock* clock)
      : options_(options), sessions_(sessions), clock_(clock) {}

  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

  // Calls that run, of sessions of this user.
  int num_calls(uint32_t uid) const;
  // Cancels the calls whose deadline has passed. To be called about once a
  // second.
  void EndStalled();

  // While the result exists, the client must send within receive_timeout;
  // otherwise the call is cancelled and reads from it fail. Nothing happens
  // without a guard.
  static auto ExpectMessage(CallGuard* guard,
                            const grpc::ServerContextBase& call) {
    if (guard != nullptr) {
      guard->SetDeadline(&call, guard->options_.receive_timeout);
    }
    return absl::MakeCleanup([guard, &call] {
      if (guard != nullptr) guard->SetDeadline(&call, absl::InfiniteDuration());
    });
  }

  uint64_t num_stalled() const { return num_stalled_.load(); }

  // For grpc::ServerBuilder. REQUIRES: the guard outlives the gRPC server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  MakeInterceptorFactory();

 private:
  class Interceptor;
  class Factory;
  struct Call {
    grpc_call* call = nullptr;
    std::optional<uint32_t> uid;
    absl::Duration deadline = absl::InfiniteDuration();
  };
  using Key = const grpc::ServerContextBase*;

  void Enter(Key key, grpc_call* call);
  void Leave(Key key);
  void SetDeadline(Key key, absl::Duration timeout);
  void SetDeadlineLocked(Key key, Call& call, absl::Duration deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns calls whose deadline has passed; the caller unrefs each.
  std::vector<grpc_call*> TakeStalled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const SessionTable* const sessions_;
  const Clock* const clock_;
  std::atomic<uint64_t> num_stalled_ = 0;
  mutable Mutex mutex_;
  std::map<Key, Call> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, int> num_calls_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<absl::Duration, Key>> deadlines_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_CALL_GUARD_H_
