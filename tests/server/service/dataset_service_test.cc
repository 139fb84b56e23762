#include "server/service/dataset_service.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasetd/v1/dataset.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/attach/session_table.h"
#include "server/service/request_context.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/faulty_backend.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::FaultyBackend;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;

// Gives memory to datasets only if the test says so.
class TestBackend : public FaultyBackend {
 public:
  // `status` outlives it.
  explicit TestBackend(const absl::Status* status)
      : FaultyBackend(std::make_unique<FakeBackend>(FakeBackendOptions{})),
        status_(status) {}

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t size_bytes) override {
    if (!status_->ok()) return *status_;
    return FaultyBackend::Allocate(size_bytes);
  }

 private:
  const absl::Status* const status_;
};

// The service over gRPC, in this process, and one session.
class DatasetServiceTest : public ::testing::Test {
 protected:
  DatasetServiceTest() {
    std::vector<ServedDevice> devices(1);
    devices[0].backend = std::make_unique<TestBackend>(&memory_);
    devices[0].budget = std::make_unique<MemoryBudget>(64 << 20);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{.max_push_wait = absl::ZeroDuration()},
        devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          if (!scan_.ok()) return scan_;
          opened_.Pass(0).IgnoreError();
          return std::make_unique<FakeSource>(10, 1, spec.path(), 7, &gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
    auto opened = sessions_.Open(/*uid=*/1000, /*pid=*/10);
    EXPECT_THAT(opened, IsOk());
    session_ = *opened;
    service_ = std::make_unique<DatasetService>(
        DatasetService::Limits{.max_loads = 2, .max_loads_per_user = 2},
        &context_, registry_.get(), /*push_spool=*/nullptr,
        [](const Dataset&) {}, [] {});
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    sessions_.SetConnection(session_.session_id, ends[0]);
    grpc::AddInsecureChannelFromFd(server_.get(), ends[0]);
    stub_ = v1::DatasetService::NewStub(
        grpc::CreateInsecureChannelFromFd("test", ends[1]));
  }
  ~DatasetServiceTest() override {
    opened_.Open();
    server_->Shutdown();
  }

  grpc::Status Load() {
    grpc::ClientContext call;
    v1::LoadDatasetRequest request;
    *request.mutable_spec() = NamedSpec("a");
    v1::LoadDatasetResponse response;
    const auto reader = stub_->LoadDataset(&call, request);
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }
  grpc::Status Estimate() {
    grpc::ClientContext call;
    v1::EstimateLoadRequest request;
    *request.mutable_spec() = NamedSpec("a");
    v1::EstimateLoadResponse response;
    const auto reader = stub_->EstimateLoad(&call, request);
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }

  // Pushes one byte.
  grpc::Status Push() {
    grpc::ClientContext call;
    v1::PushDatasetRequest request =
        testing::With(v1::PushDatasetRequest(),
                      "header { name: 'a' num_samples: 1 "
                      "fields { name: 'x' dtype: DTYPE_UINT8 shape: 1 } }");
    v1::PushDatasetResponse response;
    const auto writer = stub_->PushDataset(&call, &response);
    writer->Write(request);
    request.set_block("1");
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }

  SourceGate gate_;
  SourceGate opened_;
  absl::Status scan_;    // what opening a source says
  absl::Status memory_;  // what allocating a dataset's memory says
  FakeClock clock_;
  SessionTable sessions_{8, 8};
  RequestContext context_{&sessions_};
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
  SessionTable::Opened session_;
  std::unique_ptr<DatasetService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::DatasetService::Stub> stub_;
};

// Clients take UNAVAILABLE for the end of the daemon.
TEST_F(DatasetServiceTest, ADiskThatFailsIsNotTheDaemonsEnd) {
  const std::string text = "/data/a: reading at offset 0: Input/output error";
  scan_ = absl::UnavailableError(text);
  for (const grpc::Status& status : {Load(), Estimate()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(status.error_message(), text);
  }
  scan_ = absl::OkStatus();
  gate_.FailWith(absl::UnavailableError(text));
  const grpc::Status read = Load();
  EXPECT_EQ(read.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(read.error_message(), text);
  context_.BeginDrain();
  for (const grpc::Status& status : {Load(), Estimate()}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(status.error_message(), "the daemon is shutting down");
  }
}

TEST_F(DatasetServiceTest, NeitherIsAPushThatFailsOrWaitsInVain) {
  const std::string text = "cache: reading at offset 0: Input/output error";
  memory_ = absl::UnavailableError(text);
  const grpc::Status failed = Push();
  EXPECT_EQ(failed.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(failed.error_message(), text);
  memory_ = absl::OkStatus();
  opened_.Close();
  const Caller other = {.session_id = 1000, .uid = 1001};
  ASSERT_THAT(registry_->BeginLoad(NamedSpec("a"), other), IsOk());
  const grpc::Status waited = Push();
  EXPECT_EQ(waited.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(waited.error_message(),
            "dataset 'a' is being loaded, and its files are not found, or its "
            "load has not ended, after 0: choose another name, or push it when "
            "that load has ended");
  context_.BeginDrain();
  EXPECT_EQ(Push().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace datasetd
