#include "server/rpc/request_counter.h"

#include <grpcpp/support/interceptor.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/require.h"
#include "google/protobuf/descriptor.h"

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

RequestCounter::RequestCounter(const std::vector<std::string>& services)
    : methods_({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                "/grpc.reflection.v1alpha.ServerReflection/"
                "ServerReflectionInfo"}) {
  const auto& pool = *google::protobuf::DescriptorPool::generated_pool();
  for (const std::string& name : services) {
    const auto* const service = pool.FindServiceByName(name);
    Require(service != nullptr, "the services' protos are linked");
    for (int i = 0; i < service->method_count(); ++i) {
      methods_.insert(absl::StrCat("/", name, "/", service->method(i)->name()));
    }
  }
}

void RequestCounter::Count(const char* method, int code) {
  const bool is_known = methods_.contains(absl::string_view(method));
  MutexLock lock(&mutex_);
  ++counts_[{is_known ? method : kUnknownMethod, code}];
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
