#include "server/rpc/rpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/server_posix.h>

#include <chrono>
#include <climits>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/log/log_limiter.h"
#include "server/log/logging.h"

namespace datasetd {
namespace {

// More than two users have at a time (RpcGate::Parts::max_calls_per_user).
constexpr int kMaxRpcThreads = 128;
// More than gRPC starts with, so that there is memory for theirs, too.
constexpr int kStartThreads = 32;
constexpr int kMaxMessageBytes = 4 << 20;
constexpr int kMaxMetadataBytes = 8 << 10;

void SetLimits(grpc::ServerBuilder& builder) {
  // Without a limit on memory: gRPC ends the oldest calls of anybody to keep
  // it. RpcGate limits each user's calls.
  grpc::ResourceQuota quota("datasetd");
  quota.SetMaxThreads(kMaxRpcThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             RpcLeash::kMaxStreams);
  // An idle client answers no PING: it reads during its calls alone.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, INT_MAX);
  // Compressed messages could inflate to a thousand times their size.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
}

// gRPC logs every client error; a few lines per minute are enough.
void LogLine(gpr_log_func_args* line) {
  static auto* const limiter =
      new LogLimiter({.lines_per_minute = 10}, new RealClock);
  const LogLimiter::Verdict verdict = limiter->Admit(/*uid=*/0, "gRPC");
  if (!verdict.is_admitted) return;
  std::string text = line->message;
  if (verdict.num_left_out > 0) {
    absl::StrAppend(&text, " (", verdict.num_left_out,
                    " lines before were left out)");
  }
  Log(LogSubsystem::kService).warn("gRPC: {}", text);
}

// gRPC waits for ever for a thread that it is refused while it starts. This
// ends the process instead, as any refused thread does.
void RequireThreads() {
  std::mutex end;
  end.lock();
  std::vector<std::thread> threads;
  for (int i = 0; i < kStartThreads; ++i) {
    threads.emplace_back(
        [&end] { const std::lock_guard<std::mutex> lock(end); });
  }
  end.unlock();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const Parts& parts, RpcGate::Parts gate) {
  RequireThreads();
  gpr_set_log_function(LogLine);
  grpc::ServerBuilder builder;
  SetLimits(builder);
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(parts.guard->MakeInterceptorFactory());
  interceptors.push_back(parts.requests->MakeInterceptorFactory());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  for (grpc::Service* const service : parts.services) {
    builder.RegisterService(service);
  }
  std::unique_ptr<grpc::Server> started = builder.BuildAndStart();
  if (started == nullptr) return absl::InternalError("gRPC cannot start");
  std::unique_ptr<RpcServer> server(new RpcServer(std::move(started)));
  gate.num_running = [guard = parts.guard](uint32_t uid) {
    return guard->num_calls(uid);
  };
  // gRPC closes the descriptor when the last call on it has ended, so that its
  // number is no other connection's before.
  gate.serve = [grpc_server = server->server_.get(), sessions = parts.sessions](
                   uint64_t session_id, FileDescriptor connection) {
    sessions->SetConnection(session_id, connection.get());
    grpc::AddInsecureChannelFromFd(grpc_server, connection.Release());
  };
  DATASETD_ASSIGN_OR_RETURN(server->gate_, RpcGate::Start(std::move(gate)));
  return server;
}

RpcServer::~RpcServer() {
  Shutdown();
  // Forwards the last responses.
  gate_.reset();
}

void RpcServer::Shutdown() {
  if (gate_ != nullptr) gate_->CloseDoor();
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

}  // namespace datasetd
