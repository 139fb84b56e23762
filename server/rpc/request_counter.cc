#include "server/rpc/request_counter.h"

#include <grpcpp/support/interceptor.h>

namespace datasetd {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

class CountingInterceptor final : public Interceptor {
 public:
  CountingInterceptor(RequestCounter* counter, const char* method)
      : counter_(counter), method_(method) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      counter_->Count(method_, methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  RequestCounter* const counter_;
  const char* const method_;
};

class CountingFactory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CountingFactory(RequestCounter* counter) : counter_(counter) {}
  // gRPC owns the result.
  Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new CountingInterceptor(counter_, info->method());
  }

 private:
  RequestCounter* const counter_;
};

}  // namespace

void RequestCounter::Count(const char* method, int code) {
  MutexLock lock(&mutex_);
  ++counts_[{method, code}];
}

std::map<RequestCounter::Key, uint64_t> RequestCounter::Read() const {
  MutexLock lock(&mutex_);
  return counts_;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
RequestCounter::MakeInterceptorFactory() {
  return std::make_unique<CountingFactory>(this);
}

}  // namespace datasetd
