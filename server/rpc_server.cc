#include "server/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/status_macros.h"

namespace datasetd {
namespace {

constexpr int kMaxRpcThreads = 64;
constexpr size_t kMaxRpcMemoryBytes = 256 << 20;
constexpr int kMaxConcurrentStreams = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const std::string& path, std::optional<FileDescriptor> listener,
    RequestCounter* requests, const std::vector<grpc::Service*>& services) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ResourceQuota quota("datasetd");
  quota.SetMaxThreads(kMaxRpcThreads);
  quota.Resize(kMaxRpcMemoryBytes);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             kMaxConcurrentStreams);
  if (!listener.has_value()) {
    builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  }
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(requests->MakeInterceptorFactory());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  for (grpc::Service* const service : services) {
    builder.RegisterService(service);
  }
  std::unique_ptr<grpc::Server> started = builder.BuildAndStart();
  if (started == nullptr) {
    return absl::InternalError(absl::StrCat(
        "gRPC cannot listen on ", path,
        "; is the directory writable, and the path at most 107 bytes long?"));
  }
  std::unique_ptr<RpcServer> server(new RpcServer(std::move(started)));
  if (listener.has_value()) {
    DATASETD_ASSIGN_OR_RETURN(
        server->acceptor_,
        GrpcAcceptor::Start(*std::move(listener), server->server_.get()));
  }
  return server;
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server)
    : server_(std::move(server)) {}

RpcServer::~RpcServer() {
  acceptor_.reset();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

void RpcServer::SetNotServing() {
  server_->GetHealthCheckService()->SetServingStatus(false);
}

}  // namespace datasetd
