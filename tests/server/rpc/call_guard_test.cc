#include "server/rpc/call_guard.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "datasetd/v1/dataset.grpc.pb.h"
#include "gtest/gtest.h"
#include "server/attach/session_table.h"
#include "tests/testing/fake_clock.h"

namespace datasetd {
namespace {

constexpr uint32_t kAlice = 1000;
constexpr uint32_t kBob = 1001;
constexpr char kHeld[] = "held";

class GuardedService : public v1::DatasetService::Service {
 public:
  CallGuard* guard = nullptr;
  std::atomic<int> num_held = 0;
  absl::Notification may_end;
  absl::Notification is_receiving;
  absl::Notification has_received;
  bool has_read = true;

  grpc::Status GetDataset(grpc::ServerContext*,
                          const v1::GetDatasetRequest* request,
                          v1::GetDatasetResponse*) override {
    if (request->name() == kHeld) {
      ++num_held;
      may_end.WaitForNotification();
    }
    return grpc::Status::OK;
  }
  grpc::Status PushDataset(grpc::ServerContext* call,
                           grpc::ServerReader<v1::PushDatasetRequest>* reader,
                           v1::PushDatasetResponse*) override {
    v1::PushDatasetRequest request;
    const auto receiving = CallGuard::ExpectMessage(guard, *call);
    is_receiving.Notify();
    has_read = reader->Read(&request);
    has_received.Notify();
    return grpc::Status::OK;
  }
};

class CallGuardTest : public ::testing::Test {
 protected:
  CallGuardTest() {
    service_.guard = &guard_;
    grpc::ServerBuilder builder;
    std::vector<
        std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
        interceptors;
    interceptors.push_back(guard_.MakeInterceptorFactory());
    builder.experimental().SetInterceptorCreators(std::move(interceptors));
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~CallGuardTest() override {
    if (!service_.may_end.HasBeenNotified()) service_.may_end.Notify();
    server_->Shutdown();
    server_.reset();
  }

  // A connection of the user's.
  std::unique_ptr<v1::DatasetService::Stub> Connect(uint32_t uid) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    sessions_.SetConnection(sessions_.Open(uid, /*pid=*/1)->session_id,
                            ends[0]);
    grpc::AddInsecureChannelFromFd(server_.get(), ends[0]);
    return v1::DatasetService::NewStub(
        grpc::CreateInsecureChannelFromFd("test", ends[1]));
  }
  static grpc::Status Get(v1::DatasetService::Stub& stub,
                          const std::string& name) {
    grpc::ClientContext call;
    v1::GetDatasetRequest request;
    request.set_name(name);
    v1::GetDatasetResponse response;
    return stub.GetDataset(&call, request, &response);
  }
  void AwaitCalls(uint32_t uid, int count) {
    while (guard_.num_calls(uid) != count) std::this_thread::yield();
  }

  FakeClock clock_;
  SessionTable sessions_{8, 8};
  CallGuard guard_{
      {.send_timeout = absl::Seconds(10), .receive_timeout = absl::Minutes(5)},
      &sessions_,
      &clock_};
  GuardedService service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(CallGuardTest, CallsAreCountedByUserUntilTheyEnd) {
  const auto alice = Connect(kAlice);
  const auto alice_too = Connect(kAlice);
  const auto bob = Connect(kBob);
  std::vector<std::thread> callers;
  for (auto* const stub : {alice.get(), alice_too.get()}) {
    callers.emplace_back([stub] { EXPECT_TRUE(Get(*stub, kHeld).ok()); });
  }
  while (service_.num_held < 2) std::this_thread::yield();
  EXPECT_EQ(guard_.num_calls(kAlice), 2);
  EXPECT_TRUE(Get(*bob, "a").ok());
  AwaitCalls(kBob, 0);
  service_.may_end.Notify();
  for (std::thread& caller : callers) caller.join();
  AwaitCalls(kAlice, 0);
  guard_.EndStalled();
  EXPECT_EQ(guard_.num_stalled(), 0u);
}

TEST_F(CallGuardTest, ACallWhoseClientSendsNothingIsEnded) {
  const auto alice = Connect(kAlice);
  grpc::ClientContext call;
  v1::PushDatasetResponse response;
  const auto writer = alice->PushDataset(&call, &response);
  service_.is_receiving.WaitForNotification();
  clock_.Advance(absl::Minutes(5) + absl::Seconds(1));
  guard_.EndStalled();
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED)
      << status.error_message();
  EXPECT_EQ(guard_.num_stalled(), 1u);
  service_.has_received.WaitForNotification();
  EXPECT_FALSE(service_.has_read);
  AwaitCalls(kAlice, 0);
}

TEST_F(CallGuardTest, ACallThatIsReadInTimeIsLeftAlone) {
  const auto alice = Connect(kAlice);
  grpc::ClientContext call;
  v1::PushDatasetResponse response;
  const auto writer = alice->PushDataset(&call, &response);
  service_.is_receiving.WaitForNotification();
  clock_.Advance(absl::Minutes(5) - absl::Seconds(1));
  guard_.EndStalled();
  EXPECT_TRUE(writer->Write(v1::PushDatasetRequest()));
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
  // The client can have the status before gRPC tells the guard that it is sent.
  AwaitCalls(kAlice, 0);
  clock_.Advance(absl::Minutes(10));
  guard_.EndStalled();
  EXPECT_TRUE(service_.has_read);
  EXPECT_EQ(guard_.num_stalled(), 0u);
}

}  // namespace
}  // namespace datasetd
