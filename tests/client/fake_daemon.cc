#include "tests/client/fake_daemon.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

namespace datasetd::testing {

FakeDaemon::FakeDaemon(const FakeFeed::Options& options)
    : feed_(options), attach_(directory_.File("attach.sock")) {
  attach_.SetFeed(&feed_);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + address(),
                           grpc::InsecureServerCredentials());
  builder.RegisterService(static_cast<v1::DatasetService::Service*>(this));
  builder.RegisterService(static_cast<v1::FeedService::Service*>(this));
  builder.RegisterService(static_cast<v1::ServerService::Service*>(this));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    std::fprintf(stderr, "fake daemon: cannot listen at %s\n",
                 address().c_str());
    std::abort();
  }
}

FakeDaemon::~FakeDaemon() { Die(); }

void FakeDaemon::Die() {
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

void FakeDaemon::RefuseCalls(int num_calls) {
  absl::MutexLock lock(&mutex_);
  num_refusals_ = num_calls;
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

int FakeDaemon::num_bad_tokens() {
  absl::MutexLock lock(&mutex_);
  return num_bad_tokens_;
}

void FakeDaemon::CheckToken(const grpc::ServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find(attach::kSessionTokenMetadataKey);
  if (token == metadata.end() ||
      std::string(token->second.data(), token->second.size()) !=
          FakeAttachServer::token()) {
    absl::MutexLock lock(&mutex_);
    ++num_bad_tokens_;
  }
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
  CheckToken(*context);
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

grpc::Status FakeDaemon::GetDataset(grpc::ServerContext* context,
                                    const v1::GetDatasetRequest* request,
                                    v1::GetDatasetResponse* response) {
  CheckToken(*context);
  if (request->name() != "fake") {
    return {grpc::StatusCode::NOT_FOUND,
            "no dataset '" + request->name() + "'"};
  }
  *response->mutable_dataset() = MakeDataset(v1::DATASET_STATE_READY);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ListDatasets(grpc::ServerContext* context,
                                      const v1::ListDatasetsRequest* request,
                                      v1::ListDatasetsResponse* response) {
  CheckToken(*context);
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
  CheckToken(*context);
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
  CheckToken(*context);
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
  CheckToken(*context);
  HangIfAsked(*context);
  {
    absl::MutexLock lock(&mutex_);
    if (num_refusals_ > 0) {
      --num_refusals_;
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "this user has too many calls at a time: there may be 1"};
    }
  }
  response->set_version("fake");
  response->set_protocol_version(attach::kProtocolVersion);
  return grpc::Status::OK;
}

}  // namespace datasetd::testing
