#include "tests/client/fake_daemon.h"

#include <grpcpp/server_posix.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace datasetd::testing {

FakeDaemon::FakeDaemon(const FakeFeed::Options& options)
    : feed_(options), attach_(directory_.File("datasetd.sock")) {
  attach_.SetFeed(&feed_);
  grpc::ServerBuilder builder;
  builder.RegisterService(static_cast<v1::DatasetService::Service*>(this));
  builder.RegisterService(static_cast<v1::FeedService::Service*>(this));
  builder.RegisterService(static_cast<v1::ServerService::Service*>(this));
  server_ = builder.BuildAndStart();
  attach_.SetServe([this](FileDescriptor connection) {
    grpc::AddInsecureChannelFromFd(server_.get(), connection.Release());
  });
}

FakeDaemon::~FakeDaemon() { Die(); }

void FakeDaemon::Die() {
  attach_.SetServe(nullptr);
  attach_.Die();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_.reset();
}

void FakeDaemon::SetLoadStatus(grpc::Status status) {
  absl::MutexLock lock(&mutex_);
  load_status_ = std::move(status);
}

void FakeDaemon::SetHangs(bool hangs) {
  absl::MutexLock lock(&mutex_);
  hangs_ = hangs;
}

void FakeDaemon::OfferExport(const v1::SlabExport& slab) {
  absl::MutexLock lock(&mutex_);
  offers_.push_back(slab);
}

std::vector<v1::OpenFeedRequest> FakeDaemon::open_requests() {
  absl::MutexLock lock(&mutex_);
  return open_requests_;
}

std::vector<v1::LoadDatasetRequest> FakeDaemon::load_requests() {
  absl::MutexLock lock(&mutex_);
  return load_requests_;
}

std::vector<v1::SendIndicesRequest> FakeDaemon::index_requests() {
  absl::MutexLock lock(&mutex_);
  return index_requests_;
}

void FakeDaemon::SetIndicesStatus(grpc::Status status) {
  absl::MutexLock lock(&mutex_);
  indices_status_ = std::move(status);
}

void FakeDaemon::HangIfAsked(const grpc::ServerContext& context) {
  bool hangs;
  {
    absl::MutexLock lock(&mutex_);
    hangs = hangs_;
  }
  while (hangs && !context.IsCancelled()) std::this_thread::yield();
}

v1::Dataset FakeDaemon::MakeDataset(v1::DatasetState state) {
  v1::Dataset dataset;
  dataset.set_name("fake");
  dataset.set_state(state);
  dataset.set_device("cpu");
  dataset.set_num_samples(4000);
  return dataset;
}

grpc::Status FakeDaemon::LoadDataset(
    grpc::ServerContext* context, const v1::LoadDatasetRequest* request,
    grpc::ServerWriter<v1::LoadDatasetResponse>* writer) {
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    load_requests_.push_back(*request);
    status = load_status_;
  }
  v1::LoadDatasetResponse response;
  *response.mutable_dataset() = MakeDataset(v1::DATASET_STATE_LOADING);
  writer->Write(response);
  HangIfAsked(*context);
  if (!status.ok()) return status;
  *response.mutable_dataset() = MakeDataset(v1::DATASET_STATE_READY);
  writer->Write(response);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::GetDataset(grpc::ServerContext*,
                                    const v1::GetDatasetRequest* request,
                                    v1::GetDatasetResponse* response) {
  if (request->name() != "fake") {
    return {grpc::StatusCode::NOT_FOUND,
            "no dataset '" + request->name() + "'"};
  }
  *response->mutable_dataset() = MakeDataset(v1::DATASET_STATE_READY);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ListDatasets(grpc::ServerContext*,
                                      const v1::ListDatasetsRequest* request,
                                      v1::ListDatasetsResponse* response) {
  v1::Dataset& dataset = *response->add_datasets();
  dataset = MakeDataset(v1::DATASET_STATE_READY);
  if (request->page_token().empty()) {
    response->set_next_page_token(dataset.name());
  } else {
    dataset.set_name("second");
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::OpenFeed(grpc::ServerContext* context,
                                  const v1::OpenFeedRequest* request,
                                  v1::OpenFeedResponse* response) {
  HangIfAsked(*context);
  absl::MutexLock lock(&mutex_);
  open_requests_.push_back(*request);
  *response = feed_.Describe();
  const auto is_excluded = [request](v1::ExportKind kind) {
    return std::count(request->excluded_exports().begin(),
                      request->excluded_exports().end(), kind) > 0;
  };
  for (const v1::SlabExport& offer : offers_) {
    if (is_excluded(offer.kind())) continue;
    *response->mutable_slab() = offer;
    return grpc::Status::OK;
  }
  if (is_excluded(v1::EXPORT_KIND_MEMFD)) {
    return {grpc::StatusCode::UNIMPLEMENTED, "no export kind is left"};
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::SendIndices(grpc::ServerContext* context,
                                     const v1::SendIndicesRequest* request,
                                     v1::SendIndicesResponse*) {
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    index_requests_.push_back(*request);
    status = indices_status_;
  }
  HangIfAsked(*context);
  return status;
}

grpc::Status FakeDaemon::GetStatus(grpc::ServerContext* context,
                                   const v1::GetStatusRequest*,
                                   v1::GetStatusResponse* response) {
  HangIfAsked(*context);
  response->set_version("fake");
  response->set_protocol_version(attach::kProtocolVersion);
  return grpc::Status::OK;
}

}  // namespace datasetd::testing
