#include "client/client.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "base/file_descriptor.h"
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
using ::datasetd::testing::FakeFeed;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::SomeFeed;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using HelloAnswer = FakeAttachServer::HelloAnswer;
using enum absl::StatusCode;

absl::StatusOr<Client> Connect(const FakeDaemon& daemon) {
  ClientOptions options;
  options.address = daemon.address();
  options.connect_timeout = absl::Seconds(10);
  return Client::Connect(options);
}

FileDescriptor ListenForStreams(const std::string& path) {
  FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  EXPECT_EQ(
      bind(listener.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)),
      0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  return listener;
}

// A daemon, and a client of it.
class ClientTest : public ::testing::Test {
 protected:
  explicit ClientTest(const FakeFeed::Options& options = {})
      : daemon_(options), client_(Connect(daemon_)) {}
  void SetUp() override { ASSERT_THAT(client_, IsOk()); }

  FakeDaemon daemon_;
  absl::StatusOr<Client> client_;
};

TEST_F(ClientTest, EveryCallShowsTheToken) {
  v1::DatasetSpec spec;
  spec.set_name("fake");
  spec.set_path("relative/path");
  EXPECT_THAT(client_->LoadDataset(spec), IsOk());
  EXPECT_THAT(client_->GetDataset("fake"), IsOk());
  EXPECT_THAT(client_->ListDatasets(), IsOk());
  EXPECT_THAT(client_->GetStatus(), IsOk());
  EXPECT_THAT(client_->OpenFeed(SomeFeed()), IsOk());
  EXPECT_EQ(daemon_.load_requests()[0].spec().path(),
            (std::filesystem::current_path() / "relative/path").string());
  EXPECT_EQ(daemon_.attach().attach_request().feed_id, 1u);
  EXPECT_EQ(memcmp(daemon_.attach().attach_request().token,
                   FakeAttachServer::token().data(), attach::kTokenBytes),
            0);
}

TEST(ConnectTest, NobodyListens) {
  TempDir directory(TempDir::Place::kShortPath);
  ClientOptions options;
  options.address = directory.File("datasetd.sock");
  const auto client = Client::Connect(options);
  EXPECT_THAT(client, StatusIs(kUnavailable, HasSubstr(options.address)));
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
    ::testing::Values(HelloCase{"Refused", HelloAnswer::kRefuse,
                                kResourceExhausted, ErrorDetail::kNone,
                                "max_sessions is 1024"},
                      HelloCase{"OtherVersion", HelloAnswer::kOtherVersion,
                                kFailedPrecondition,
                                ErrorDetail::kVersionMismatch, "version 7"},
                      HelloCase{"Garbage", HelloAnswer::kGarbage, kInternal,
                                ErrorDetail::kNone, "is it a datasetd"},
                      HelloCase{"ShortPacket", HelloAnswer::kShortPacket,
                                kInternal, ErrorDetail::kNone, "24 bytes"},
                      HelloCase{"NoConnection", HelloAnswer::kNoConnection,
                                kInternal, ErrorDetail::kNone,
                                "message 2 and 0 descriptors"},
                      HelloCase{"Draining", HelloAnswer::kGoodbye, kAborted,
                                ErrorDetail::kDaemonDraining, "SIGTERM"},
                      HelloCase{"Closed", HelloAnswer::kClose, kUnavailable,
                                ErrorDetail::kDaemonGone, "gone"}),
    [](const auto& info) { return info.param.name; });

TEST(ConnectTest, ADaemonUpToProtocol2IsAnotherVersion) {
  TempDir directory(TempDir::Place::kShortPath);
  ClientOptions options;
  options.address = directory.File("datasetd.sock");
  const auto listener = ListenForStreams(options.address);
  const auto client = Client::Connect(options);
  EXPECT_THAT(client,
              StatusIs(kFailedPrecondition,
                       HasSubstr("speaks an earlier protocol version, this "
                                 "client 3: install the client that came with "
                                 "the daemon")));
  EXPECT_EQ(DetailOf(client.status()), ErrorDetail::kVersionMismatch);
}

TEST_F(ClientTest, AnEndedSessionSaysWhy) {
  daemon_.attach().SendSessionGoodbye(attach::GoodbyeCode::kSessionEnded,
                                      "its requests stopped");
  daemon_.Die();
  const absl::Status status = client_->GetStatus().status();
  EXPECT_THAT(status,
              StatusIs(kUnavailable,
                       HasSubstr("ended this session: its requests stopped")));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonGone);
}

TEST(ConnectTest, SilentDaemonIsATimeout) {
  FakeDaemon daemon;
  daemon.attach().SetHelloAnswer(HelloAnswer::kSilence);
  ClientOptions options;
  options.address = daemon.address();
  options.connect_timeout = absl::Milliseconds(50);
  EXPECT_THAT(Client::Connect(options), StatusIs(kDeadlineExceeded));
}

TEST_F(ClientTest, DaemonsErrorsComeThrough) {
  EXPECT_THAT(client_->GetDataset("none"),
              StatusIs(kNotFound, "no dataset 'none'"));
  daemon_.SetLoadStatus({grpc::StatusCode::DATA_LOSS, "file:7"});
  EXPECT_THAT(client_->LoadDataset({}), StatusIs(kDataLoss, "file:7"));
  // A terminal that shows the message does not obey it.
  daemon_.SetLoadStatus({grpc::StatusCode::DATA_LOSS, "a\x1b[2J\xe2\x80\xae"});
  EXPECT_THAT(client_->LoadDataset({}),
              StatusIs(kDataLoss, "a\\x1b[2J\\xe2\\x80\\xae"));
  EXPECT_THAT(client_->UnloadDataset("fake"), StatusIs(kUnimplemented));
}

TEST_F(ClientTest, ProgressIsReportedAndCancels) {
  std::vector<v1::DatasetState> states;
  ASSERT_THAT(client_->LoadDataset({},
                                   [&states](const v1::Dataset& dataset) {
                                     states.push_back(dataset.state());
                                     return true;
                                   }),
              IsOk());
  ASSERT_GE(states.size(), 2u);
  EXPECT_EQ(states.back(), v1::DATASET_STATE_READY);
  // A daemon that says no more: the heartbeat lets the caller give up.
  daemon_.SetHangs(true);
  int num_reports = 0;
  EXPECT_THAT(
      client_->LoadDataset(
          {}, [&num_reports](const v1::Dataset&) { return ++num_reports < 4; }),
      StatusIs(kCancelled));
  EXPECT_EQ(num_reports, 4);
}

TEST_F(ClientTest, CallsToADaemonThatIsGone) {
  ASSERT_THAT(client_->GetStatus(), IsOk());
  daemon_.Die();
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = client_->GetStatus().status();
    EXPECT_THAT(status, StatusIs(kUnavailable));
    EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonGone);
  }
}

TEST_F(ClientTest, CallsToADaemonThatSaidGoodbye) {
  daemon_.attach().SendSessionGoodbye(attach::GoodbyeCode::kDraining,
                                      "SIGTERM");
  daemon_.Die();
  const absl::Status status = client_->GetStatus().status();
  EXPECT_THAT(status, StatusIs(kAborted, HasSubstr("SIGTERM")));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonDraining);
}

using FeedTest = ClientTest;

TEST_F(FeedTest, ReadsFieldsAndReturnsSlots) {
  auto feed = client_->OpenFeed(SomeFeed());
  ASSERT_THAT(feed, IsOk());
  ASSERT_TRUE(daemon_.attach().AwaitImportResult(1));
  EXPECT_EQ(daemon_.attach().import_results()[0].is_ok, 1u);
  EXPECT_EQ(feed->batches_per_epoch(), 1000u);
  EXPECT_EQ(feed->info().content_hash(), "c0ffee");
  ASSERT_TRUE(daemon_.feed().PublishRows(3, 1));
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
    EXPECT_EQ(daemon_.feed().num_held(), 1u);
  }
  EXPECT_EQ(daemon_.feed().num_held(), 0u);
  feed->Close();
  EXPECT_TRUE(daemon_.attach().AwaitDetached(1));
  const auto closed = feed->Next();
  EXPECT_THAT(closed, StatusIs(kFailedPrecondition));
  EXPECT_EQ(DetailOf(closed.status()), ErrorDetail::kClosed);
}

TEST_F(FeedTest, MoveAssignmentGivesBackWhatWasHeld) {
  auto feed = client_->OpenFeed(SomeFeed());
  ASSERT_THAT(feed, IsOk());
  ASSERT_TRUE(daemon_.feed().Publish());
  ASSERT_TRUE(daemon_.feed().Publish());
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

  auto other = client_->OpenFeed(SomeFeed());
  ASSERT_THAT(other, IsOk());
  *feed = *std::move(other);
  EXPECT_EQ(other->core(), nullptr);
  EXPECT_TRUE(daemon_.attach().AwaitDetached(1));
}

TEST_F(FeedTest, FailedImportIsReportedAndTheNextKindTried) {
  v1::SlabExport ipc;
  ipc.set_kind(v1::EXPORT_KIND_CUDA_IPC_HANDLE);
  ipc.set_size_bytes(2 << 20);
  ipc.set_device("cuda:0");
  ipc.set_gpu_uuid(std::string(16, 'u'));
  ipc.set_cuda_ipc_handle(std::string(64, 'h'));
  daemon_.OfferExport(ipc);
  const auto feed = client_->OpenFeed(SomeFeed());
  ASSERT_THAT(feed, IsOk());
  const auto requests = daemon_.open_requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_THAT(requests[1].excluded_exports(),
              ElementsAre(v1::EXPORT_KIND_CUDA_IPC_HANDLE));
  ASSERT_TRUE(daemon_.attach().AwaitImportResult(2));
  auto results = daemon_.attach().import_results();
  // Each lease has a connection of its own, so they come in either order.
  if (results[0].is_ok != 0) std::swap(results[0], results[1]);
  EXPECT_EQ(results[0].is_ok, 0u);
  EXPECT_THAT(ReasonText(results[0].reason), HasSubstr("CUDA"));
  EXPECT_EQ(results[1].is_ok, 1u);
  // The first lease gave its slab up.
  EXPECT_TRUE(daemon_.attach().AwaitDetached(1));
}

TEST_F(FeedTest, NoKindIsLeft) {
  daemon_.attach().SetFeed(&daemon_.feed(), /*sends_slab=*/false);
  EXPECT_THAT(
      client_->OpenFeed(SomeFeed()),
      StatusIs(kUnimplemented, AllOf(HasSubstr("no export kind is left"),
                                     HasSubstr("EXPORT_KIND_MEMFD"),
                                     HasSubstr("without a descriptor"))));
}

class ShortFeedTest : public ClientTest {
 protected:
  ShortFeedTest() : ClientTest({.batches_per_epoch = 2}) {}
};

TEST_F(ShortFeedTest, TheEndOfAnEpochIsTheBeginningOfTheNext) {
  v1::FeedOptions options = SomeFeed();
  options.mutable_start()->set_epoch(4);
  options.mutable_start()->set_batch(2);
  auto feed = client_->OpenFeed(options);
  ASSERT_THAT(feed, IsOk());
  daemon_.feed().PublishRaw(
      0, {.sequence = 1, .epoch = 5, .batch = 0, .num_samples = 4});
  const auto batch = feed->Next(0, absl::ZeroDuration());
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ(batch->info().epoch, 5u);
}

TEST_F(FeedTest, RefusedLease) {
  daemon_.attach().SetFeed(nullptr);
  EXPECT_THAT(client_->OpenFeed(SomeFeed()),
              StatusIs(kNotFound, HasSubstr("no such feed")));
}

TEST_F(FeedTest, ReasonsOfTheDaemonAreEscaped) {
  auto feed = client_->OpenFeed(SomeFeed());
  ASSERT_THAT(feed, IsOk());
  daemon_.attach().SendGoodbye(attach::GoodbyeCode::kUnloaded, "\x1b[2J\nx");
  EXPECT_THAT(feed->Next(0, absl::Seconds(10)),
              StatusIs(kFailedPrecondition, HasSubstr(": \\x1b[2J\\nx")));
}

TEST_F(FeedTest, LeaseRefusedByTheNextDaemon) {
  daemon_.attach().ForgetSessions();
  const absl::Status status = client_->OpenFeed(SomeFeed()).status();
  EXPECT_THAT(status, StatusIs(kUnavailable, HasSubstr("is gone")));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonGone);
  EXPECT_EQ(daemon_.open_requests().size(), 1u);
}

TEST_F(FeedTest, RingOfAnotherVersion) {
  daemon_.feed().daemon_page()->version = 9;
  const auto feed = client_->OpenFeed(SomeFeed());
  EXPECT_THAT(feed, StatusIs(kFailedPrecondition, HasSubstr("version 9")));
  EXPECT_EQ(DetailOf(feed.status()), ErrorDetail::kVersionMismatch);
}

TEST_F(FeedTest, RingThatIsNone) {
  daemon_.feed().daemon_page()->magic = 0;
  EXPECT_THAT(client_->OpenFeed(SomeFeed()),
              StatusIs(kInternal, HasSubstr("no ring")));
  // The daemon need not keep the slab for this process.
  EXPECT_TRUE(daemon_.attach().AwaitDetached(1));
}

TEST(UnsealedFeedTest, PagesThatMayBeCutAreRefused) {
  FakeFeed::Options options;
  options.is_sealed = false;
  FakeDaemon daemon(options);
  auto client = Connect(daemon);
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(client->OpenFeed(SomeFeed()),
              StatusIs(kInternal, HasSubstr("page is not sealed against")));
}

template <typename T>
std::string BytesOf(const std::vector<T>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     numbers.size() * sizeof(T));
}

TEST_F(FeedTest, ArraysComeSealedWithTheLease) {
  std::vector<double> weights(300'000);
  std::vector<int64_t> samples(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<double>(i);
    samples[i] = static_cast<int64_t>(2 * i);
  }
  EXPECT_THAT(client_->OpenFeed(SomeFeed(), {.weights = weights,
                                             .weighted_samples = samples}),
              IsOk());
  const v1::WeightedOrder order =
      daemon_.open_requests().back().options().weighted_order();
  EXPECT_EQ(order.num_samples(), weights.size());
  EXPECT_TRUE(order.lists_samples());
  EXPECT_THAT(daemon_.attach().attach_arrays(),
              ElementsAre(BytesOf(weights), BytesOf(samples)));

  EXPECT_THAT(client_->OpenFeed(SomeFeed(), {.subset = samples}), IsOk());
  EXPECT_EQ(daemon_.open_requests().back().options().subset_size(),
            samples.size());
  EXPECT_THAT(daemon_.attach().attach_arrays(), ElementsAre(BytesOf(samples)));

  EXPECT_THAT(client_->OpenFeed(SomeFeed()), IsOk());
  EXPECT_THAT(daemon_.attach().attach_arrays(), IsEmpty());

  EXPECT_THAT(
      client_->OpenFeed(SomeFeed(),
                        {.weights = weights,
                         .weighted_samples = absl::MakeSpan(samples).first(7)}),
      StatusIs(kInvalidArgument, HasSubstr("there are 300000 for 7 samples")));
  EXPECT_EQ(daemon_.open_requests().size(), 3u);
}

TEST_F(FeedTest, OtherWeightsComeSealedAndBringASeek) {
  const std::vector<double> weights = {1, 2, 3};
  auto feed = client_->OpenFeed(SomeFeed(), {.weights = weights});
  ASSERT_THAT(feed, IsOk());
  const auto& sought = daemon_.feed().client_page()->seek_generation;
  const std::vector<double> others = {4, 5, 6};
  EXPECT_THAT(feed->SetWeights(others), IsOk());
  EXPECT_THAT(daemon_.attach().attach_arrays(), ElementsAre(BytesOf(others)));
  EXPECT_EQ(sought.load(), 0u);
  // To where it is.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(feed->Seek(0, 0), IsOk());
    EXPECT_EQ(sought.load(), 1u);
  }
  // Refused, the feed goes on.
  daemon_.attach().SetWeightsAnswer(3);
  EXPECT_THAT(feed->SetWeights(others),
              StatusIs(kInvalidArgument, "weights[1] is -1"));
  daemon_.attach().SetWeightsAnswer(8);
  EXPECT_THAT(feed->SetWeights(others),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("refused: weights[1]")));
  daemon_.feed().PublishRaw(0,
                            {.sequence = 1, .generation = 1, .num_samples = 4});
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()), IsOk());
  feed->Close();
  EXPECT_EQ(DetailOf(feed->SetWeights(others)), ErrorDetail::kClosed);
}

TEST_F(FeedTest, AnAnswerToOtherWeightsThatComesLate) {
  const std::vector<double> weights = {1};
  auto feed = client_->OpenFeed(SomeFeed(), {.weights = weights});
  ASSERT_THAT(feed, IsOk());
  daemon_.attach().SetWeightsAnswer(std::nullopt);
  EXPECT_THAT(feed->SetWeights(weights, {.timeout = absl::Milliseconds(1)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(feed->SetWeights(weights, {.on_wait = [] { return false; }}),
              StatusIs(absl::StatusCode::kCancelled));
  // A call that waits for a batch passes over it.
  daemon_.attach().SendWeightsAnswer(3);
  EXPECT_THAT(feed->Next(0, absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  // Another call does not take it for its own.
  EXPECT_THAT(feed->SetWeights(weights, {.timeout = absl::Milliseconds(1)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  daemon_.attach().SendWeightsAnswer(3);
  daemon_.attach().SetWeightsAnswer(0);
  EXPECT_THAT(feed->SetWeights(weights), IsOk());
  daemon_.attach().SendWeightsAnswer(0);
  const absl::Status status = feed->Next(0, absl::Seconds(10)).status();
  EXPECT_THAT(status, StatusIs(kInternal, HasSubstr("sent message 11")));
}

TEST_F(FeedTest, OtherWeightsForADaemonThatGoes) {
  const std::vector<double> weights = {1};
  auto feed = client_->OpenFeed(SomeFeed(), {.weights = weights});
  ASSERT_THAT(feed, IsOk());
  daemon_.attach().SetWeightsAnswer(std::nullopt);
  daemon_.attach().SendGoodbye(attach::GoodbyeCode::kDraining, "SIGTERM");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(DetailOf(feed->SetWeights(weights)),
              ErrorDetail::kDaemonDraining);
  }
}

v1::FeedOptions SomeOrderedFeed() {
  v1::FeedOptions options = SomeFeed();
  options.mutable_client_order();
  return options;
}

// A batch of one row.
IndexBlock OneRow() {
  static constexpr int64_t kIndices[] = {1};
  static constexpr uint32_t kSizes[] = {1};
  return {.indices = kIndices, .batch_sizes = kSizes};
}

using ClientOrderTest = ClientTest;

TEST_F(ClientOrderTest, NextWantsWhatWasSent) {
  auto feed = client_->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  EXPECT_THAT(feed->Next(0),
              StatusIs(kFailedPrecondition, HasSubstr("send more indices")));
  const std::vector<int64_t> indices = {5, 5, 6};
  const std::vector<uint32_t> sizes = {2, 1};
  ASSERT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = sizes}),
              IsOk());
  const auto requests = daemon_.index_requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].feed_id(), 1u);
  EXPECT_EQ(requests[0].generation(), 0u);
  EXPECT_THAT(requests[0].indices(), ElementsAre(5, 5, 6));
  EXPECT_THAT(requests[0].batch_sizes(), ElementsAre(2, 1));
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()), StatusIs(kDeadlineExceeded));
  ASSERT_TRUE(daemon_.feed().Publish());
  ASSERT_TRUE(daemon_.feed().Publish());
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()), IsOk());
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()), IsOk());
  EXPECT_THAT(feed->Next(0), StatusIs(kFailedPrecondition));
  // More than was sent is no order of this client's.
  ASSERT_TRUE(daemon_.feed().Publish());
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()), StatusIs(kInternal));
}

TEST_F(ClientOrderTest, BlocksSayWhereTheyBegin) {
  v1::FeedOptions options = SomeOrderedFeed();
  options.mutable_start()->set_epoch(2);
  options.mutable_start()->set_batch(10);
  auto feed = client_->OpenFeed(options);
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
  for (const auto& request : daemon_.index_requests()) {
    begins.push_back(
        absl::StrCat(request.generation(), ": ", request.start().epoch(), ".",
                     request.start().batch(), " row ", request.first_row()));
  }
  EXPECT_THAT(begins,
              ElementsAre("0: 2.10 row 40", "0: 2.12 row 43", "0: 3.0 row 0",
                          "1: 7.3 row 12", "2: 9.1 row 4", "2: 9.3 row 7"));
}

TEST_F(ClientOrderTest, ManyRowsAreSeveralCalls) {
  auto feed = client_->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  const std::vector<uint32_t> sizes = {40000, 25000, 536, 1, 100000, 2};
  const std::vector<int64_t> indices(165539, 3);
  ASSERT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = sizes}),
              IsOk());
  std::vector<int> num_rows;
  std::vector<uint64_t> batches;
  for (const auto& request : daemon_.index_requests()) {
    num_rows.push_back(request.indices_size());
    batches.push_back(request.start().batch());
  }
  EXPECT_THAT(num_rows, ElementsAre(65536, 1, 100000, 2));
  EXPECT_THAT(batches, ElementsAre(0, 3, 4, 5));
}

TEST_F(ClientOrderTest, Refusals) {
  const std::vector<int64_t> indices = {1, 2};
  const std::vector<uint32_t> sizes = {1};
  auto plain = client_->OpenFeed(SomeFeed());
  ASSERT_THAT(plain, IsOk());
  EXPECT_THAT(plain->SendIndices({.indices = indices, .batch_sizes = sizes}),
              StatusIs(kFailedPrecondition, HasSubstr("client_order")));
  auto feed = client_->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  EXPECT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = sizes}),
              StatusIs(kInvalidArgument, HasSubstr("sum up to 1")));
  daemon_.SetIndicesStatus({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many"});
  const std::vector<uint32_t> right = {2};
  EXPECT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = right}),
              StatusIs(kResourceExhausted, HasSubstr("too many")));
  // Nothing of it is waited for.
  EXPECT_THAT(feed->Next(0), StatusIs(kFailedPrecondition));
  feed->Close();
  EXPECT_THAT(feed->SendIndices({.indices = indices, .batch_sizes = right}),
              StatusIs(kFailedPrecondition));
}

TEST_F(ClientOrderTest, TheFeedOutlivesItsClient) {
  auto feed = client_->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  { const Client gone = *std::move(client_); }
  EXPECT_THAT(feed->SendIndices(OneRow()), IsOk());
  EXPECT_EQ(daemon_.attach().num_sessions(), 1);
  feed->Close();
}

TEST_F(FeedTest, IndicesThatTheDaemonDoesNotTakeInTime) {
  auto feed = client_->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  const IndexBlock block = OneRow();
  daemon_.SetHangs(true);
  EXPECT_THAT(feed->SendIndices(block, {.timeout = absl::Milliseconds(50)}),
              StatusIs(kDeadlineExceeded, HasSubstr("within 50ms")));
  // It may have taken them.
  EXPECT_THAT(feed->SendIndices(block),
              StatusIs(kFailedPrecondition, HasSubstr("seek")));
  EXPECT_THAT(feed->Next(0, absl::ZeroDuration()),
              StatusIs(kFailedPrecondition, HasSubstr("seek")));
  EXPECT_EQ(daemon_.index_requests().back().generation(), 0u);
  ASSERT_THAT(feed->Seek(0, 0), IsOk());
  // Without an end in time, and broken off.
  int num_waits = 0;
  EXPECT_THAT(
      feed->SendIndices(block, {.timeout = absl::InfiniteDuration(),
                                .on_wait = [&] { return ++num_waits < 2; }}),
      StatusIs(kCancelled, HasSubstr("broken off")));
  EXPECT_EQ(num_waits, 2);
  EXPECT_EQ(daemon_.index_requests().back().generation(), 1u);
  daemon_.SetHangs(false);
  ASSERT_THAT(feed->Seek(0, 0), IsOk());
  EXPECT_THAT(feed->SendIndices(block), IsOk());
  EXPECT_EQ(daemon_.index_requests().back().generation(), 2u);
}

// See what a daemon does that is stopped by SIGTERM: it says goodbye, ends its
// leases, and has never heard of their feeds.
TEST_F(ClientOrderTest, TheLeaseTellsWhyAFeedIsNotFound) {
  auto drained = client_->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(drained, IsOk());
  const IndexBlock block = OneRow();
  daemon_.SetIndicesStatus({grpc::StatusCode::NOT_FOUND, "no open feed 1"});
  EXPECT_THAT(drained->SendIndices(block),
              StatusIs(kNotFound, HasSubstr("no open feed 1")));
  daemon_.attach().SendGoodbye(attach::GoodbyeCode::kDraining, "SIGTERM",
                               /*close=*/false);
  absl::Status status = drained->SendIndices(block);
  EXPECT_THAT(status, StatusIs(kAborted));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonDraining);
  drained->Close();

  auto unloaded = client_->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(unloaded, IsOk());
  daemon_.attach().SendGoodbye(attach::GoodbyeCode::kUnloaded, "by force",
                               /*close=*/false);
  status = unloaded->SendIndices(block);
  EXPECT_THAT(status, StatusIs(kFailedPrecondition));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDatasetUnloaded);
}

TEST_F(ClientTest, ACallThatTheDaemonsEndBreaksOffSaysSo) {
  v1::DatasetSpec spec;
  spec.set_name("fake");
  spec.set_path("path");
  const grpc::StatusCode codes[] = {grpc::StatusCode::CANCELLED,
                                    grpc::StatusCode::UNKNOWN,
                                    grpc::StatusCode::INTERNAL};
  for (const grpc::StatusCode code : codes) {
    daemon_.SetLoadStatus({code, "a call that is broken off"});
    const absl::Status status = client_->LoadDataset(spec).status();
    EXPECT_EQ(static_cast<int>(status.code()), static_cast<int>(code));
    EXPECT_THAT(status.message(), HasSubstr("broken off"));
  }
  daemon_.attach().SendSessionGoodbye(attach::GoodbyeCode::kDraining,
                                      "SIGTERM");
  for (const grpc::StatusCode code : codes) {
    daemon_.SetLoadStatus({code, "a call that is broken off"});
    const absl::Status status = client_->LoadDataset(spec).status();
    EXPECT_THAT(status, StatusIs(kAborted));
    EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonDraining);
  }
}

TEST_F(ClientTest, AnUnknownTokenOfAnEndedSessionIsADaemonThatIsGone) {
  auto feed = client_->OpenFeed(SomeOrderedFeed());
  ASSERT_THAT(feed, IsOk());
  const IndexBlock block = OneRow();
  daemon_.SetIndicesStatus(
      {grpc::StatusCode::UNAUTHENTICATED, "no such token"});
  EXPECT_THAT(feed->SendIndices(block),
              StatusIs(kUnauthenticated, HasSubstr("no such token")));
  // As where another daemon answers at the address.
  daemon_.attach().Die();
  const absl::Status status = feed->SendIndices(block);
  EXPECT_THAT(status, StatusIs(kUnavailable));
  EXPECT_EQ(DetailOf(status), ErrorDetail::kDaemonGone);
}

}  // namespace
}  // namespace datasetd::client
