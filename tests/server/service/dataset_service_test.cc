#include "server/service/dataset_service.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datasetd/v1/dataset.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/attach_protocol.h"
#include "server/attach/session_table.h"
#include "server/service/request_context.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;

// The service over gRPC, in this process, and one session.
class DatasetServiceTest : public ::testing::Test {
 protected:
  DatasetServiceTest() {
    std::vector<ServedDevice> devices(1);
    devices[0].backend = std::make_unique<FakeBackend>(FakeBackendOptions{});
    devices[0].budget = std::make_unique<MemoryBudget>(64 << 20);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{}, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          if (!scan_.ok()) return scan_;
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
    stub_ = v1::DatasetService::NewStub(
        server_->InProcessChannel(grpc::ChannelArguments()));
  }
  ~DatasetServiceTest() override { server_->Shutdown(); }

  void ShowToken(grpc::ClientContext* call) const {
    call->AddMetadata(
        attach::kSessionTokenMetadataKey,
        std::string(session_.token.begin(), session_.token.end()));
  }
  grpc::Status Load() {
    grpc::ClientContext call;
    ShowToken(&call);
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
    ShowToken(&call);
    v1::EstimateLoadRequest request;
    *request.mutable_spec() = NamedSpec("a");
    v1::EstimateLoadResponse response;
    const auto reader = stub_->EstimateLoad(&call, request);
    while (reader->Read(&response)) {
    }
    return reader->Finish();
  }

  SourceGate gate_;
  absl::Status scan_;  // what opening a source says
  FakeClock clock_;
  SessionTable sessions_{8, 8};
  RequestContext context_{&sessions_, nullptr, nullptr, [] {}};
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

}  // namespace
}  // namespace datasetd
