#include "client/client.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "client/connection/address.h"
#include "client/connection/error_detail.h"
#include "client/feed/batch.h"
#include "client/feed/feed.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::FakeAttachServer;
using ::datasetd::testing::FakeDaemon;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using HelloAnswer = FakeAttachServer::HelloAnswer;

absl::StatusOr<Client> Connect(const FakeDaemon& daemon) {
  ClientOptions options;
  options.address = daemon.address();
  options.connect_timeout = absl::Seconds(10);
  return Client::Connect(options);
}

v1::FeedOptions SomeFeed() {
  v1::FeedOptions options;
  options.set_dataset("fake");
  options.set_batch_size(4);
  return options;
}

TEST(AddressTest, ArgumentVariableDefault) {
  unsetenv(kAddressVariable);
  auto address = ResolveAddress("");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->socket_path, "/run/datasetd/datasetd.sock");
  EXPECT_EQ(address->attach_socket_path, "/run/datasetd/attach.sock");
  setenv(kAddressVariable, "unix:/a/b.sock", 1);
  address = ResolveAddress("");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->socket_path, "/a/b.sock");
  address = ResolveAddress("unix:///c/d.sock");
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->target(), "unix:/c/d.sock");
  EXPECT_EQ(address->attach_socket_path, "/c/attach.sock");
  unsetenv(kAddressVariable);
  EXPECT_THAT(ResolveAddress("localhost:50051"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("looks like a host and a port")));
  EXPECT_THAT(ResolveAddress("http://host:80"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("http://host:80")));
  EXPECT_THAT(ResolveAddress("/" + std::string(120, 'x') + "/d.sock"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("107")));
}

TEST(ClientTest, EveryCallShowsTheToken) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  v1::DatasetSpec spec;
  spec.set_name("fake");
  spec.set_path("relative/path");
  EXPECT_THAT(client->LoadDataset(spec), IsOk());
  EXPECT_THAT(client->GetDataset("fake"), IsOk());
  EXPECT_THAT(client->ListDatasets(), IsOk());
  EXPECT_THAT(client->GetStatus(), IsOk());
  EXPECT_THAT(client->OpenFeed(SomeFeed()), IsOk());
  EXPECT_EQ(daemon.num_bad_tokens(), 0);
  EXPECT_EQ(daemon.load_requests()[0].spec().path(),
            (std::filesystem::current_path() / "relative/path").string());
  EXPECT_EQ(daemon.attach().attach_request().feed_id, 1u);
  EXPECT_EQ(memcmp(daemon.attach().attach_request().token,
                   FakeAttachServer::token().data(), attach::kTokenBytes),
            0);
}

TEST(ClientTest, NobodyListens) {
  TempDir directory(TempDir::Place::kShortPath);
  ClientOptions options;
  options.address = directory.File("datasetd.sock");
  const auto client = Client::Connect(options);
  EXPECT_THAT(client, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr(directory.File("attach.sock"))));
  EXPECT_EQ(DetailOf(client.status()), ErrorDetail::kDaemonGone);
}

struct HelloCase {
  const char* name;
  HelloAnswer answer;
  absl::StatusCode code;
  ErrorDetail detail;
  const char* message;
};

class ClientHelloTest : public ::testing::TestWithParam<HelloCase> {};

TEST_P(ClientHelloTest, BadAnswersAreToldApart) {
  FakeDaemon daemon;
  daemon.attach().SetHelloAnswer(GetParam().answer);
  const auto client = Connect(daemon);
  EXPECT_THAT(client, StatusIs(GetParam().code, HasSubstr(GetParam().message)));
  EXPECT_EQ(DetailOf(client.status()), GetParam().detail);
}

INSTANTIATE_TEST_SUITE_P(
    All, ClientHelloTest,
    ::testing::Values(
        HelloCase{"Refused", HelloAnswer::kRefuse,
                  absl::StatusCode::kResourceExhausted, ErrorDetail::kNone,
                  "max_sessions is 1024"},
        HelloCase{"OtherVersion", HelloAnswer::kOtherVersion,
                  absl::StatusCode::kFailedPrecondition,
                  ErrorDetail::kVersionMismatch, "version 7"},
        HelloCase{"Garbage", HelloAnswer::kGarbage, absl::StatusCode::kInternal,
                  ErrorDetail::kNone, "is it a datasetd"},
        HelloCase{"ShortPacket", HelloAnswer::kShortPacket,
                  absl::StatusCode::kInternal, ErrorDetail::kNone, "24 bytes"},
        HelloCase{"Draining", HelloAnswer::kGoodbye, absl::StatusCode::kAborted,
                  ErrorDetail::kDaemonDraining, "SIGTERM"},
        HelloCase{"Closed", HelloAnswer::kClose, absl::StatusCode::kUnavailable,
                  ErrorDetail::kDaemonGone, "gone"}),
    [](const auto& info) { return info.param.name; });

TEST(ClientTest, SilentDaemonIsATimeout) {
  FakeDaemon daemon;
  daemon.attach().SetHelloAnswer(HelloAnswer::kSilence);
  ClientOptions options;
  options.address = daemon.address();
  options.connect_timeout = absl::Milliseconds(50);
  EXPECT_THAT(Client::Connect(options),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(ClientTest, DaemonsErrorsComeThrough) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(client->GetDataset("none"),
              StatusIs(absl::StatusCode::kNotFound, "no dataset 'none'"));
  daemon.SetLoadStatus({grpc::StatusCode::DATA_LOSS, "file:7"});
  EXPECT_THAT(client->LoadDataset({}),
              StatusIs(absl::StatusCode::kDataLoss, "file:7"));
  EXPECT_THAT(client->UnloadDataset("fake"),
              StatusIs(absl::StatusCode::kUnimplemented));
}

TEST(ClientTest, ProgressIsReportedAndCancels) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  std::vector<v1::DatasetState> states;
  ASSERT_THAT(client->LoadDataset({},
                                  [&states](const v1::Dataset& dataset) {
                                    states.push_back(dataset.state());
                                    return true;
                                  }),
              IsOk());
  ASSERT_GE(states.size(), 2u);
  EXPECT_EQ(states.back(), v1::DATASET_STATE_READY);
  // A daemon that says no more: the heartbeat lets the caller give up.
  daemon.SetHangs(true);
  int num_reports = 0;
  EXPECT_THAT(
      client->LoadDataset(
          {}, [&num_reports](const v1::Dataset&) { return ++num_reports < 4; }),
      StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(num_reports, 4);
}

TEST(ClientTest, CallsToADaemonThatIsGone) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  ASSERT_THAT(client->GetStatus(), IsOk());
  daemon.Die();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = client->GetStatus().status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonGone);
  }
}

TEST(ClientTest, CallsToADaemonThatSaidGoodbye) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  daemon.attach().SendSessionGoodbye(attach::GoodbyeCode::kDraining, "SIGTERM");
  daemon.Die();
  const absl::Status status = client->GetStatus().status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("SIGTERM")));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonDraining);
}

TEST(FeedTest, ReadsFieldsAndReturnsSlots) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  auto feed = client->OpenFeed(SomeFeed());
  ASSERT_THAT(feed, IsOk());
  ASSERT_TRUE(daemon.attach().AwaitImportResult(1));
  EXPECT_EQ(daemon.attach().import_results()[0].is_ok, 1u);
  EXPECT_EQ(feed->batches_per_epoch(), 1000u);
  EXPECT_EQ(feed->info().content_hash(), "c0ffee");
  ASSERT_TRUE(daemon.feed().PublishRows(3, 1));
  {
    auto batch = feed->Next(0, absl::ZeroDuration());
    ASSERT_THAT(batch, IsOk());
    const FieldView image = batch->field(0);
    EXPECT_STREQ(image.name, "image");
    EXPECT_EQ(image.num_dimensions, 4);
    EXPECT_THAT(
        std::vector<int64_t>(image.shape.begin(), image.shape.begin() + 4),
        ElementsAre(3, 3, 2, 2));
    EXPECT_EQ(image.strides[1], 1);
    EXPECT_EQ(static_cast<int64_t*>(batch->indices().data)[2], 2);
    EXPECT_EQ(batch->num_padding(), 1u);
    EXPECT_THAT(batch->RecordStream(7), IsOk());
    const Batch moved = *std::move(batch);
    EXPECT_FALSE(batch->is_held());
    EXPECT_EQ(daemon.feed().num_held(), 1u);
  }
  EXPECT_EQ(daemon.feed().num_held(), 0u);
  feed->Close();
  EXPECT_TRUE(daemon.attach().AwaitDetached(1));
  const auto closed = feed->Next();
  EXPECT_THAT(closed, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(DetailOf(closed.status()), ErrorDetail::kClosed);
}

TEST(FeedTest, MoveAssignmentGivesBackWhatWasHeld) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  auto feed = client->OpenFeed(SomeFeed());
  ASSERT_THAT(feed, IsOk());
  ASSERT_TRUE(daemon.feed().Publish());
  ASSERT_TRUE(daemon.feed().Publish());
  auto first = feed->Next(0, absl::ZeroDuration());
  ASSERT_THAT(first, IsOk());
  auto second = feed->Next(0, absl::ZeroDuration());
  ASSERT_THAT(second, IsOk());
  Batch& batch = *first;
  batch = *std::move(second);
  EXPECT_EQ(batch.index(), 1u);
  EXPECT_FALSE(second->is_held());
  EXPECT_EQ(feed->num_held(), 1u);
  batch = std::move(*first);  // itself
  EXPECT_EQ(batch.index(), 1u);
  EXPECT_EQ(feed->num_held(), 1u);
  batch.Release();

  auto other = client->OpenFeed(SomeFeed());
  ASSERT_THAT(other, IsOk());
  *feed = *std::move(other);
  EXPECT_EQ(other->core(), nullptr);
  EXPECT_TRUE(daemon.attach().AwaitDetached(1));
}

TEST(FeedTest, FailedImportIsReportedAndTheNextKindTried) {
  FakeDaemon daemon;
  v1::SlabExport ipc;
  ipc.set_kind(v1::EXPORT_KIND_CUDA_IPC_HANDLE);
  ipc.set_size_bytes(2 << 20);
  ipc.set_device("cuda:0");
  ipc.set_gpu_uuid(std::string(16, 'u'));
  ipc.set_cuda_ipc_handle(std::string(64, 'h'));
  daemon.OfferExport(ipc);
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  const auto feed = client->OpenFeed(SomeFeed());
  ASSERT_THAT(feed, IsOk());
  const auto requests = daemon.open_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(requests[1].excluded_exports(),
              ElementsAre(v1::EXPORT_KIND_CUDA_IPC_HANDLE));
  ASSERT_TRUE(daemon.attach().AwaitImportResult(2));
  const auto results = daemon.attach().import_results();
  EXPECT_EQ(results[0].is_ok, 0u);
  EXPECT_THAT(ReasonText(results[0].reason), HasSubstr("CUDA"));
  EXPECT_EQ(results[1].is_ok, 1u);
  // The first lease gave its slab up.
  EXPECT_TRUE(daemon.attach().AwaitDetached(1));
}

TEST(FeedTest, NoKindIsLeft) {
  FakeDaemon daemon;
  daemon.attach().SetFeed(&daemon.feed(), /*sends_slab=*/false);
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(client->OpenFeed(SomeFeed()),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("no export kind is left"),
                             HasSubstr("EXPORT_KIND_MEMFD"),
                             HasSubstr("without a descriptor"))));
}

TEST(FeedTest, TheEndOfAnEpochIsTheBeginningOfTheNext) {
  FakeDaemon daemon({.batches_per_epoch = 2});
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  v1::FeedOptions options = SomeFeed();
  options.mutable_start()->set_epoch(4);
  options.mutable_start()->set_batch(2);
  auto feed = client->OpenFeed(options);
  ASSERT_THAT(feed, IsOk());
  daemon.feed().PublishRaw(
      0, {.sequence = 1, .epoch = 5, .batch = 0, .num_samples = 4});
  const auto batch = feed->Next(0, absl::ZeroDuration());
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ(batch->info().epoch, 5u);
}

TEST(FeedTest, RefusedLease) {
  FakeDaemon daemon;
  daemon.attach().SetFeed(nullptr);
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(client->OpenFeed(SomeFeed()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such feed")));
}

TEST(FeedTest, LeaseRefusedByTheNextDaemon) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  daemon.attach().ForgetSessions();
  const absl::Status status = client->OpenFeed(SomeFeed()).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is gone")));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonGone);
  EXPECT_EQ(daemon.open_requests().size(), 1u);
}

TEST(FeedTest, RingOfAnotherVersion) {
  FakeDaemon daemon;
  daemon.feed().daemon_page()->version = 9;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  const auto feed = client->OpenFeed(SomeFeed());
  EXPECT_THAT(feed, StatusIs(absl::StatusCode::kFailedPrecondition,
                             HasSubstr("version 9")));
  EXPECT_EQ(DetailOf(feed.status()), ErrorDetail::kVersionMismatch);
}

TEST(FeedTest, RingThatIsNone) {
  FakeDaemon daemon;
  daemon.feed().daemon_page()->magic = 0;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(client->OpenFeed(SomeFeed()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no ring")));
  // The daemon need not keep the slab for this process.
  EXPECT_TRUE(daemon.attach().AwaitDetached(1));
}

TEST(FeedTest, WeightsAreSentInBlocksBeforeTheLease) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  std::vector<double> weights(300'000);
  std::vector<int64_t> indices(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<double>(i);
    indices[i] = static_cast<int64_t>(2 * i);
  }
  EXPECT_THAT(
      client->OpenFeed(SomeFeed(), {.weights = weights, .indices = indices}),
      IsOk());
  const v1::WeightedOrder order =
      daemon.open_requests().back().options().weighted_order();
  EXPECT_EQ(order.num_samples(), weights.size());
  EXPECT_TRUE(order.lists_samples());
  uint64_t first = 0;
  for (const v1::SendWeightsRequest& request : daemon.weight_requests()) {
    EXPECT_EQ(request.feed_id(), 1u);
    EXPECT_EQ(request.first(), first);
    // A daemon takes messages of 4 MiB.
    EXPECT_LT(request.ByteSizeLong(), 2u << 20);
    ASSERT_EQ(request.indices_size(), request.weights_size());
    for (int i = 0; i < request.weights_size(); ++i, ++first) {
      ASSERT_EQ(request.weights(i), weights[first]);
      ASSERT_EQ(request.indices(i), indices[first]);
    }
  }
  EXPECT_EQ(first, weights.size());
  EXPECT_THAT(client->OpenFeed(SomeFeed(),
                               {.weights = weights,
                                .indices = absl::MakeSpan(indices).first(7)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there are 300000 for 7 indices")));
  EXPECT_EQ(daemon.open_requests().size(), 1u);
}

v1::FeedOptions SomeOrderedFeed() {
  v1::FeedOptions options = SomeFeed();
  options.mutable_client_order();
  return options;
}

TEST(ClientOrderTest, NextWantsWhatWasSent) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  auto feed = client->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  EXPECT_THAT(feed->Next(0), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("send more indices")));
  const std::vector<int64_t> indices = {5, 5, 6};
  const std::vector<uint32_t> sizes = {2, 1};
  ASSERT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = sizes}),
              IsOk());
  const auto requests = daemon.index_requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].feed_id(), 1u);
  EXPECT_EQ(requests[0].generation(), 0u);
  EXPECT_THAT(requests[0].indices(), ElementsAre(5, 5, 6));
  EXPECT_THAT(requests[0].batch_sizes(), ElementsAre(2, 1));
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  ASSERT_TRUE(daemon.feed().Publish());
  ASSERT_TRUE(daemon.feed().Publish());
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()), IsOk());
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()), IsOk());
  EXPECT_THAT(feed->Next(0), StatusIs(absl::StatusCode::kFailedPrecondition));
  // More than was sent is no order of this client's.
  ASSERT_TRUE(daemon.feed().Publish());
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kInternal));
  EXPECT_EQ(daemon.num_bad_tokens(), 0);
}

TEST(ClientOrderTest, BlocksSayWhereTheyBegin) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  v1::FeedOptions options = SomeOrderedFeed();
  options.mutable_start()->set_epoch(2);
  options.mutable_start()->set_batch(10);
  auto feed = client->OpenFeed(options);
  ASSERT_THAT(feed, IsOk());
  const std::vector<int64_t> indices = {1, 2, 3};
  const std::vector<uint32_t> sizes = {2, 1};
  const auto send = [&](bool ends_epoch, std::optional<uint64_t> first_row) {
    ASSERT_THAT(feed->SendIndices({.indices = indices,
                                   .batch_sizes = sizes,
                                   .ends_epoch = ends_epoch,
                                   .first_row = first_row}),
                IsOk());
  };
  send(false, std::nullopt);
  send(true, std::nullopt);
  send(false, std::nullopt);
  ASSERT_THAT(feed->Seek(7, 3), IsOk());
  send(false, std::nullopt);
  ASSERT_THAT(feed->Seek(9, 1), IsOk());
  send(false, 4);
  send(false, std::nullopt);
  std::vector<std::string> begins;
  for (const auto& request : daemon.index_requests()) {
    begins.push_back(
        absl::StrCat(request.generation(), ": ", request.start().epoch(), ".",
                     request.start().batch(), " row ", request.first_row()));
  }
  EXPECT_THAT(begins,
              ElementsAre("0: 2.10 row 40", "0: 2.12 row 43", "0: 3.0 row 0",
                          "1: 7.3 row 12", "2: 9.1 row 4", "2: 9.3 row 7"));
}

TEST(ClientOrderTest, ManyRowsAreSeveralCalls) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  auto feed = client->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  const std::vector<uint32_t> sizes = {40000, 25000, 536, 1, 100000, 2};
  const std::vector<int64_t> indices(165539, 3);
  ASSERT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = sizes}),
              IsOk());
  std::vector<int> num_rows;
  std::vector<uint64_t> batches;
  for (const auto& request : daemon.index_requests()) {
    num_rows.push_back(request.indices_size());
    batches.push_back(request.start().batch());
  }
  EXPECT_THAT(num_rows, ElementsAre(65536, 1, 100000, 2));
  EXPECT_THAT(batches, ElementsAre(0, 3, 4, 5));
}

TEST(ClientOrderTest, Refusals) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  const std::vector<int64_t> indices = {1, 2};
  const std::vector<uint32_t> sizes = {1};
  auto plain = client->OpenFeed(SomeFeed());
  ASSERT_THAT(plain, IsOk());
  EXPECT_THAT(plain->SendIndices({.indices = indices, .batch_sizes = sizes}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("client_order")));
  auto feed = client->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  EXPECT_THAT(
      feed->SendIndices({.indices = indices, .batch_sizes = sizes}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sum up to 1")));
  daemon.SetIndicesStatus({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many"});
  const std::vector<uint32_t> right = {2};
  EXPECT_THAT(
      feed->SendIndices({.indices = indices, .batch_sizes = right}),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("too many")));
  // Nothing of it is waited for.
  EXPECT_THAT(feed->Next(0), StatusIs(absl::StatusCode::kFailedPrecondition));
  feed->Close();
  EXPECT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = right}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ClientOrderTest, TheFeedOutlivesItsClient) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  auto feed = client->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  { const Client gone = *std::move(client); }
  const std::vector<int64_t> indices = {1};
  const std::vector<uint32_t> sizes = {1};
  EXPECT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = sizes}),
              IsOk());
  EXPECT_EQ(daemon.attach().num_sessions(), 1);
  feed->Close();
}

TEST(FeedTest, IndicesThatTheDaemonDoesNotTakeInTime) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  auto feed = client->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  const std::vector<int64_t> indices = {1};
  const std::vector<uint32_t> sizes = {1};
  const IndexBlock block = {.indices = indices, .batch_sizes = sizes};
  daemon.SetHangs(true);
  EXPECT_THAT(
      feed->SendIndices(block, {.timeout = absl::Milliseconds(50)}),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("within 50ms")));
  // It may have taken them.
  EXPECT_THAT(
      feed->SendIndices(block),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("seek")));
  EXPECT_THAT(
      feed->Next(0, absl::ZeroDuration()),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("seek")));
  EXPECT_EQ(daemon.index_requests().back().generation(), 0u);
  ASSERT_THAT(feed->Seek(0, 0), IsOk());
  // Without an end in time, and broken off.
  int num_waits = 0;
  EXPECT_THAT(
      feed->SendIndices(block, {.timeout = absl::InfiniteDuration(),
                                .on_wait = [&] { return ++num_waits < 2; }}),
      StatusIs(absl::StatusCode::kCancelled, HasSubstr("broken off")));
  EXPECT_EQ(num_waits, 2);
  EXPECT_EQ(daemon.index_requests().back().generation(), 1u);
  daemon.SetHangs(false);
  ASSERT_THAT(feed->Seek(0, 0), IsOk());
  EXPECT_THAT(feed->SendIndices(block), IsOk());
  EXPECT_EQ(daemon.index_requests().back().generation(), 2u);
}

// See what a daemon does that is stopped by SIGTERM: it says goodbye, ends its
// leases, and has never heard of their feeds.
TEST(ClientOrderTest, TheLeaseTellsWhyAFeedIsNotFound) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  auto drained = client->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(drained, IsOk());
  const std::vector<int64_t> indices = {1};
  const std::vector<uint32_t> sizes = {1};
  const IndexBlock block = {.indices = indices, .batch_sizes = sizes};
  daemon.SetIndicesStatus({grpc::StatusCode::NOT_FOUND, "no open feed 1"});
  EXPECT_THAT(
      drained->SendIndices(block),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("no open feed 1")));
  daemon.attach().SendGoodbye(attach::GoodbyeCode::kDraining, "SIGTERM",
                              /*close=*/false);
  absl::Status status = drained->SendIndices(block);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonDraining);
  drained->Close();

  auto unloaded = client->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(unloaded, IsOk());
  daemon.attach().SendGoodbye(attach::GoodbyeCode::kUnloaded, "by force",
                              /*close=*/false);
  status = unloaded->SendIndices(block);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDatasetUnloaded);
}

TEST(ClientTest, ACallThatTheDaemonsEndBreaksOffSaysSo) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  v1::DatasetSpec spec;
  spec.set_name("fake");
  spec.set_path("path");
  const grpc::StatusCode codes[] = {grpc::StatusCode::CANCELLED,
                                    grpc::StatusCode::UNKNOWN,
                                    grpc::StatusCode::INTERNAL};
  for (const grpc::StatusCode code : codes) {
    daemon.SetLoadStatus({code, "a call that is broken off"});
    const absl::Status status = client->LoadDataset(spec).status();
    EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(code));
    EXPECT_THAT(status.message(), HasSubstr("broken off"));
  }
  daemon.attach().SendSessionGoodbye(attach::GoodbyeCode::kDraining, "SIGTERM");
  for (const grpc::StatusCode code : codes) {
    daemon.SetLoadStatus({code, "a call that is broken off"});
    const absl::Status status = client->LoadDataset(spec).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
    EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonDraining);
  }
}

TEST(ClientTest, AnUnknownTokenOfAnEndedSessionIsADaemonThatIsGone) {
  FakeDaemon daemon;
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  auto feed = client->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  const std::vector<int64_t> indices = {1};
  const std::vector<uint32_t> sizes = {1};
  const IndexBlock block = {.indices = indices, .batch_sizes = sizes};
  daemon.SetIndicesStatus({grpc::StatusCode::UNAUTHENTICATED, "no such token"});
  EXPECT_THAT(
      feed->SendIndices(block),
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("no such token")));
  // As where another daemon answers at the address.
  daemon.attach().Die();
  const absl::Status status = feed->SendIndices(block);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonGone);
}

}  // namespace
}  // namespace datasetd::client
