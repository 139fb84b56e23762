#include "server/service/feed_service.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasetd/v1/feed.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/attach/session_table.h"
#include "server/service/request_context.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/memory_channel.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::MemoryChannel;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint32_t kUid = 1000;
constexpr int32_t kPid = 10;

// The service over gRPC, in this process, and one session.
class FeedServiceTest : public ::testing::Test {
 protected:
  FeedServiceTest() {
    std::vector<ServedDevice> devices(1);
    devices[0].backend = std::make_unique<FakeBackend>(FakeBackendOptions{});
    devices[0].budget = std::make_unique<MemoryBudget>(64 << 20);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{}, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          return std::make_unique<FakeSource>(10, 1, spec.path(), 7, &gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
    const Caller loader = {.session_id = 99, .uid = kUid, .pid = kPid};
    EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), loader), IsOk());
    EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::Seconds(30))->state,
              DatasetState::kReady);
    auto table = FeedTable::Create(
        {}, devices_.get(), registry_.get(),
        [this](uint32_t num_slots)
            -> absl::StatusOr<std::unique_ptr<FeedChannel>> {
          if (while_opening_) while_opening_();
          return std::make_unique<MemoryChannel>(num_slots);
        },
        &clock_, [](const char*, const FeedInfo&) {},
        [](uint64_t, absl::Status status) {
          ADD_FAILURE() << status.ToString();
        });
    EXPECT_THAT(table, IsOk());
    table_ = *std::move(table);
    auto opened = sessions_.Open(kUid, kPid);
    EXPECT_THAT(opened, IsOk());
    session_ = *opened;
    service_ = std::make_unique<FeedService>(&context_, table_.get());
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    descriptor_ = ends[0];
    sessions_.SetConnection(session_.session_id, descriptor_);
    grpc::AddInsecureChannelFromFd(server_.get(), ends[0]);
    stub_ = v1::FeedService::NewStub(
        grpc::CreateInsecureChannelFromFd("test", ends[1]));
  }
  ~FeedServiceTest() override { server_->Shutdown(); }

  // All memory but for one feed's.
  Reservation FillUp() {
    v1::OpenFeedResponse response;
    EXPECT_TRUE(Open(&response).ok());
    MemoryBudget& budget = *devices_->devices()[0].budget;
    auto filler = budget.Reserve(MemoryKind::kScratch, 0, budget.free_bytes(),
                                 "the rest");
    EXPECT_THAT(filler, IsOk());
    return *std::move(filler);
  }
  // Ends the session, as the attach server does when its connection ends.
  void EndSession() {
    sessions_.Close(session_.token);
    table_->EndSession(session_.session_id);
    table_->AwaitEnded(absl::Seconds(30));
  }
  grpc::Status Open(v1::OpenFeedResponse* response) {
    grpc::ClientContext call;
    v1::OpenFeedRequest request;
    request.mutable_options()->set_dataset("a");
    request.mutable_options()->set_batch_size(4);
    request.mutable_options()->set_prefetch(2);
    request.mutable_options()->mutable_client_order();
    return stub_->OpenFeed(&call, request, response);
  }
  grpc::Status SendIndices(uint64_t feed_id, int64_t index) {
    grpc::ClientContext call;
    v1::SendIndicesRequest request;
    request.set_feed_id(feed_id);
    request.add_batch_sizes(1);
    request.add_indices(index);
    v1::SendIndicesResponse response;
    return stub_->SendIndices(&call, request, &response);
  }
  uint64_t used_bytes() const {
    const MemoryBudget& budget = *devices_->devices()[0].budget;
    return budget.used_bytes_of_kind(MemoryKind::kSlab) +
           budget.used_bytes_of_kind(MemoryKind::kScratch);
  }

  SourceGate gate_;
  FakeClock clock_;
  SessionTable sessions_{8, 8};
  RequestContext context_{&sessions_, /*guard=*/nullptr,
                          [this](const Caller& caller) {
                            EXPECT_EQ(caller.uid, kUid);
                            if (await_ends_) await_ends_();
                          }};
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
  // Called before OpenFeed opens, and in the midst of it.
  std::function<void()> await_ends_;
  std::function<void()> while_opening_;
  std::unique_ptr<FeedTable> table_;
  SessionTable::Opened session_;
  int descriptor_ = -1;  // of the session's connection
  std::unique_ptr<FeedService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::FeedService::Stub> stub_;
};

TEST_F(FeedServiceTest, WhatWasClosedBeforeIsWaitedFor) {
  const Reservation filler = FillUp();
  int num_waits = 0;
  await_ends_ = [&] { ++num_waits; };
  v1::OpenFeedResponse response;
  EXPECT_EQ(Open(&response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(num_waits, 1);
  await_ends_ = [this] {
    table_->EndLease(table_->List()[0].feed.feed_id());
    table_->AwaitEnded(absl::Seconds(30));
  };
  EXPECT_TRUE(Open(&response).ok());
}

TEST_F(FeedServiceTest, OpensAFeedForALiveSession) {
  v1::OpenFeedResponse response;
  ASSERT_TRUE(Open(&response).ok());
  EXPECT_EQ(response.order_capacity(), 72);
  EXPECT_THAT(table_->List(), SizeIs(1));
  EXPECT_GT(used_bytes(), 0);
  EXPECT_TRUE(SendIndices(response.feed_id(), 3).ok());
  EXPECT_EQ(SendIndices(response.feed_id(), 10).error_code(),
            grpc::StatusCode::OUT_OF_RANGE);
}

// A client that reconnects must be able to tell its feed's end by a drain from
// a feed that never was.
TEST_F(FeedServiceTest, IndicesForAFeedThatADrainEndedAreUnavailable) {
  v1::OpenFeedResponse response;
  ASSERT_TRUE(Open(&response).ok());
  EXPECT_EQ(SendIndices(response.feed_id() + 1, 3).error_code(),
            grpc::StatusCode::NOT_FOUND);
  context_.BeginDrain();
  table_->DropPending(nullptr);
  const grpc::Status status = SendIndices(response.feed_id(), 3);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("shutting down"));
}

TEST_F(FeedServiceTest, TransformsAreToldToTheFeedsUserAlone) {
  v1::OpenFeedResponse opened;
  ASSERT_TRUE(Open(&opened).ok());
  const auto ask = [&](uint64_t feed_id) {
    grpc::ClientContext call;
    v1::GetFeedTransformsRequest request;
    request.set_feed_id(feed_id);
    v1::GetFeedTransformsResponse response;
    return stub_->GetFeedTransforms(&call, request, &response);
  };
  EXPECT_TRUE(ask(opened.feed_id()).ok());
  EXPECT_EQ(ask(opened.feed_id() + 1).error_code(),
            grpc::StatusCode::NOT_FOUND);
  sessions_.Close(session_.token);
  session_ = *sessions_.Open(kUid + 1, kPid);
  sessions_.SetConnection(session_.session_id, descriptor_);
  EXPECT_EQ(ask(opened.feed_id()).error_code(), grpc::StatusCode::NOT_FOUND);
}

// Errors repeat the names that a client sent. They must not drive its terminal.
TEST_F(FeedServiceTest, ErrorsHoldNamesEscaped) {
  grpc::ClientContext call;
  v1::OpenFeedRequest request;
  request.mutable_options()->set_dataset("a\x1b[31m\n\xc2\x9b\xe2\x80\xae");
  request.mutable_options()->set_batch_size(4);
  v1::OpenFeedResponse response;
  const grpc::Status status = stub_->OpenFeed(&call, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(),
              HasSubstr("'a\\x1b[31m\\n\\xc2\\x9b\\xe2\\x80\\xae'"));
}

// The session's end looked through the table before the feed was in there.
TEST_F(FeedServiceTest, AFeedWhoseSessionEndsMeanwhileGoesWithIt) {
  int num_ended = 0;
  while_opening_ = [&] {
    EndSession();
    ++num_ended;
  };
  v1::OpenFeedResponse response;
  const grpc::Status status = Open(&response);
  EXPECT_EQ(num_ended, 1);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(status.error_message(),
              HasSubstr("session of this call has ended"));
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_THAT(table_->List(), SizeIs(0));
  EXPECT_EQ(used_bytes(), 0);
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
                ->dataset.num_feeds(),
            0);
}

TEST_F(FeedServiceTest, AnEndedSessionOpensAndSendsNothing) {
  v1::OpenFeedResponse response;
  ASSERT_TRUE(Open(&response).ok());
  EndSession();
  EXPECT_EQ(used_bytes(), 0);
  EXPECT_EQ(SendIndices(response.feed_id(), 3).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Open(&response).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(used_bytes(), 0);
}

}  // namespace
}  // namespace datasetd
