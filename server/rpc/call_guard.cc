#include "server/rpc/call_guard.h"

#include <grpc/grpc.h>
#include <grpcpp/support/interceptor.h>
#include <pthread.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace datasetd {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

// Maximum delay between a call's deadline and its end.
constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr absl::string_view kOwnMethods = "/datasetd.v1.";
constexpr absl::string_view kReflectionMethods = "/grpc.reflection.";
constexpr char kRefused[] = "this user has too many calls at a time";

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
    const bool has_place = guard_->Enter(key_, call_);
    const absl::string_view method = info_->method();
    if (absl::StartsWith(method, kReflectionMethods) &&
        !guard_->options_.has_reflection) {
      grpc_call_cancel_with_status(
          call_, GRPC_STATUS_UNIMPLEMENTED,
          "reflection is off: 'grpc_reflection' of the daemon's configuration",
          nullptr);
    } else if (!has_place && !absl::StartsWith(method, kOwnMethods)) {
      grpc_call_cancel_with_status(call_, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                   kRefused, nullptr);
    }
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

CallGuard::CallGuard(const Options& options, const PeerTable* peers,
                     const Clock* clock)
    : options_(options), peers_(peers), clock_(clock) {
  thread_ = std::thread([this] { Run(); });
}

CallGuard::~CallGuard() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  thread_.join();
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CallGuard::MakeInterceptorFactory() {
  return std::make_unique<Factory>(this);
}

absl::Status CallGuard::CheckPlace(const grpc::ServerContextBase& call) const {
  MutexLock lock(&mutex_);
  const auto found = calls_.find(&call);
  if (found == calls_.end() || !found->second.is_refused) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      kRefused, ": there may be ", options_.max_calls_per_user,
      ", which is 'user_limits.max_calls' of the configuration; try again when "
      "some have ended"));
}

bool CallGuard::Enter(Key key, grpc_call* call) {
  const std::optional<uint32_t> uid = peers_->Find(key->peer());
  MutexLock lock(&mutex_);
  Call& entered = calls_[key];
  entered = {.call = call, .uid = uid};
  if (uid.has_value()) {
    entered.is_refused = ++num_calls_[*uid] > options_.max_calls_per_user;
  }
  return !entered.is_refused;
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

void CallGuard::Run() {
  pthread_setname_np(pthread_self(), "call_guard");
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || !deadlines_.empty();
  };
  while (true) {
    std::vector<grpc_call*> stalled;
    {
      MutexLock lock(&mutex_, Condition(&has_work));
      // Polls, so that calls do not wake this thread.
      mutex_.AwaitWithTimeout(Condition(&is_stopping_), kTick);
      if (is_stopping_) return;
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
