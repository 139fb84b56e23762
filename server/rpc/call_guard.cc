#include "server/rpc/call_guard.h"

#include <grpc/grpc.h>
#include <grpcpp/support/interceptor.h>

namespace datasetd {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

}  // namespace

class CallGuard::Interceptor final : public grpc::experimental::Interceptor {
 public:
  Interceptor(CallGuard* guard, ServerRpcInfo* info)
      : guard_(guard), info_(info) {}
  ~Interceptor() override {
    if (call_ == nullptr) return;
    guard_->Leave(key_);
    grpc_call_unref(call_);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    const auto is = [methods](InterceptionHookPoints point) {
      return methods->QueryInterceptionHookPoint(point);
    };
    if (is(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) Enter();
    if (call_ != nullptr) {
      if (is(InterceptionHookPoints::PRE_SEND_MESSAGE) ||
          is(InterceptionHookPoints::PRE_SEND_STATUS)) {
        guard_->SetDeadline(key_, guard_->options_.send_timeout);
      } else if (is(InterceptionHookPoints::POST_SEND_MESSAGE)) {
        guard_->SetDeadline(key_, absl::InfiniteDuration());
      }
    }
    methods->Proceed();
  }

 private:
  void Enter() {
    if (call_ != nullptr || info_->server_context() == nullptr) return;
    key_ = info_->server_context();
    // The reference keeps the call alive for the thread that cancels it.
    call_ = info_->server_context()->c_call();
    grpc_call_ref(call_);
    guard_->Enter(key_, call_);
  }

  CallGuard* const guard_;
  ServerRpcInfo* const info_;
  Key key_ = nullptr;
  grpc_call* call_ = nullptr;
};

class CallGuard::Factory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(CallGuard* guard) : guard_(guard) {}
  // gRPC owns the result.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* info) override {
    return new Interceptor(guard_, info);
  }

 private:
  CallGuard* const guard_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CallGuard::MakeInterceptorFactory() {
  return std::make_unique<Factory>(this);
}

int CallGuard::num_calls(uint32_t uid) const {
  MutexLock lock(&mutex_);
  const auto found = num_calls_.find(uid);
  return found == num_calls_.end() ? 0 : found->second;
}

void CallGuard::Enter(Key key, grpc_call* call) {
  const auto caller = sessions_->OfConnection(key->peer());
  MutexLock lock(&mutex_);
  Call& entered = calls_[key];
  entered = {.call = call};
  if (!caller.ok()) return;
  entered.uid = caller->uid;
  ++num_calls_[caller->uid];
}

void CallGuard::Leave(Key key) {
  MutexLock lock(&mutex_);
  const auto found = calls_.find(key);
  Call& call = found->second;
  SetDeadlineLocked(key, call, absl::InfiniteDuration());
  if (call.uid.has_value()) {
    const auto count = num_calls_.find(*call.uid);
    if (--count->second == 0) num_calls_.erase(count);
  }
  calls_.erase(found);
}

void CallGuard::SetDeadline(Key key, absl::Duration timeout) {
  const absl::Duration deadline = clock_->Monotonic() + timeout;
  MutexLock lock(&mutex_);
  const auto found = calls_.find(key);
  if (found != calls_.end()) SetDeadlineLocked(key, found->second, deadline);
}

void CallGuard::SetDeadlineLocked(Key key, Call& call,
                                  absl::Duration deadline) {
  if (call.deadline != absl::InfiniteDuration()) {
    deadlines_.erase({call.deadline, key});
  }
  call.deadline = deadline;
  if (deadline != absl::InfiniteDuration()) deadlines_.insert({deadline, key});
}

void CallGuard::EndStalled() {
  std::vector<grpc_call*> stalled;
  {
    MutexLock lock(&mutex_);
    stalled = TakeStalled();
  }
  // Without the lock: cancelling may end calls on this thread.
  for (grpc_call* const call : stalled) {
    num_stalled_.fetch_add(1, std::memory_order_relaxed);
    grpc_call_cancel_with_status(call, GRPC_STATUS_DEADLINE_EXCEEDED,
                                 "the client did not read or write in time",
                                 nullptr);
    grpc_call_unref(call);
  }
}

std::vector<grpc_call*> CallGuard::TakeStalled() {
  const absl::Duration now = clock_->Monotonic();
  std::vector<grpc_call*> stalled;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Key key = deadlines_.begin()->second;
    Call& call = calls_.at(key);
    SetDeadlineLocked(key, call, absl::InfiniteDuration());
    grpc_call_ref(call.call);
    stalled.push_back(call.call);
  }
  return stalled;
}

}  // namespace datasetd
