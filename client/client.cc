#include "client/client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "client/connection/unary_call.h"
#include "client/device/cuda_driver.h"

namespace datasetd::client {
namespace {

// Calls `method`, an Async method of Stub.
template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Call(
    Session* session, Stub* stub, const CallLimits& limits,
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*method)(
        grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
    const Request& request) {
  DATASETD_RETURN_IF_ERROR(session->CheckProcess());
  Response response;
  DATASETD_RETURN_IF_ERROR(session->ToStatus(
      UnaryCall(*session, stub, method, request, limits, &response)));
  return response;
}

// Reads a stream without a thread: polls the queue, and reports the last
// message in between.
template <typename Response>
class StreamCall {
 public:
  using Reader = std::unique_ptr<grpc::ClientAsyncReader<Response>>;
  using Report = std::function<bool(const Response&)>;

  // `start` begins the call; its tag is `tag`.
  template <typename Start>
  StreamCall(Session* session, Start start, Report report)
      : report_(std::move(report)) {
    session->Prepare(&context_, absl::InfiniteDuration());
    void* const tag = this;
    reader_ = start(&context_, &queue_, tag);
  }
  ~StreamCall() {
    queue_.Shutdown();
    void* tag;
    bool is_ok;
    while (queue_.Next(&tag, &is_ok)) {
    }
  }

  // Runs the call and stores the last message in `last`.
  grpc::Status Run(Response* last) {
    bool is_open = Await(*last);
    while (is_open) {
      Response response;
      reader_->Read(&response, this);
      is_open = Await(*last);
      if (!is_open) break;
      *last = std::move(response);
      Tell(*last);
    }
    grpc::Status status;
    reader_->Finish(&status, this);
    Await(*last);
    return status;
  }

  bool is_cancelled() const { return is_cancelled_; }

 private:
  // Whether the pending operation succeeded.
  bool Await(const Response& last) {
    for (;;) {
      void* tag;
      bool is_ok = false;
      switch (queue_.AsyncNext(&tag, &is_ok,
                               std::chrono::system_clock::now() +
                                   absl::ToChronoMilliseconds(kWaitInterval))) {
        case grpc::CompletionQueue::GOT_EVENT:
          return is_ok;
        case grpc::CompletionQueue::TIMEOUT:
          Tell(last);
          break;
        case grpc::CompletionQueue::SHUTDOWN:
          return false;
      }
    }
  }

  void Tell(const Response& last) {
    if (!is_cancelled_ && !report_(last)) {
      is_cancelled_ = true;
      context_.TryCancel();
    }
  }

  const Report report_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  Reader reader_;
  bool is_cancelled_ = false;
};

// Makes the path absolute, as the daemon requires.
absl::Status MakePathAbsolute(v1::DatasetSpec* spec) {
  if (spec->path().empty()) return absl::OkStatus();
  std::error_code error;
  const auto path = std::filesystem::absolute(spec->path(), error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("path '", spec->path(), "': ", error.message()));
  }
  spec->set_path(path.lexically_normal().string());
  return absl::OkStatus();
}

// Names the GPU as the daemon knows it: its numbers of GPUs may be others.
absl::Status ChooseDevice(Session* session, v1::FeedOptions* options) {
  DATASETD_RETURN_IF_ERROR(session->CheckProcess());
  const std::string& device = options->device();
  int ordinal = 0;
  if (device.empty()) {
    if (session->HasReplicas(options->dataset())) {
      options->set_device(CurrentGpuUuid());
    }
  } else if (absl::string_view digits = device;
             absl::ConsumePrefix(&digits, "cuda:") &&
             absl::SimpleAtoi(digits, &ordinal)) {
    absl::StatusOr<std::string> uuid = GpuUuid(ordinal);
    if (!uuid.ok()) {
      // UNAVAILABLE would say that the daemon is gone.
      return absl::InvalidArgumentError(uuid.status().message());
    }
    options->set_device(*std::move(uuid));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Client> Client::Connect(const ClientOptions& options) {
  DATASETD_ASSIGN_OR_RETURN(const Address address,
                            ResolveAddress(options.address));
  DATASETD_ASSIGN_OR_RETURN(
      std::unique_ptr<Session> session,
      Session::Connect(address, {.timeout = options.connect_timeout,
                                 .on_wait = options.on_wait}));
  return Client(std::move(session), options);
}

absl::StatusOr<v1::Dataset> Client::LoadDataset(
    v1::DatasetSpec spec, const ProgressFunction& on_progress) {
  DATASETD_RETURN_IF_ERROR(session_->CheckProcess());
  DATASETD_RETURN_IF_ERROR(MakePathAbsolute(&spec));
  const std::string name = spec.name();
  v1::LoadDatasetRequest request;
  *request.mutable_spec() = std::move(spec);
  StreamCall<v1::LoadDatasetResponse> call(
      session_.get(),
      [&](grpc::ClientContext* context, grpc::CompletionQueue* queue,
          void* tag) {
        return session_->datasets()->AsyncLoadDataset(context, request, queue,
                                                      tag);
      },
      [&](const v1::LoadDatasetResponse& response) {
        return limits_.MayGoOn() &&
               (!on_progress || on_progress(response.dataset()));
      });
  v1::LoadDatasetResponse last;
  const grpc::Status status = call.Run(&last);
  if (call.is_cancelled()) {
    return absl::CancelledError(
        absl::StrCat("loading dataset '", name, "' was cancelled"));
  }
  DATASETD_RETURN_IF_ERROR(session_->ToStatus(status));
  v1::Dataset& dataset = *last.mutable_dataset();
  if (dataset.state() != v1::DATASET_STATE_READY) {
    return absl::InternalError(absl::StrCat(
        "the daemon ended loading dataset '", name, "' in state ",
        v1::DatasetState_Name(dataset.state()), ": ", dataset.error()));
  }
  session_->NoteReplicas(dataset);
  return std::move(dataset);
}

absl::StatusOr<v1::LoadEstimate> Client::EstimateLoad(
    v1::DatasetSpec spec, const EstimateFunction& on_progress) {
  DATASETD_RETURN_IF_ERROR(session_->CheckProcess());
  DATASETD_RETURN_IF_ERROR(MakePathAbsolute(&spec));
  v1::EstimateLoadRequest request;
  *request.mutable_spec() = std::move(spec);
  StreamCall<v1::EstimateLoadResponse> call(
      session_.get(),
      [&](grpc::ClientContext* context, grpc::CompletionQueue* queue,
          void* tag) {
        return session_->datasets()->AsyncEstimateLoad(context, request, queue,
                                                       tag);
      },
      [&](const v1::EstimateLoadResponse& response) {
        return limits_.MayGoOn() && (!on_progress || on_progress(response));
      });
  v1::EstimateLoadResponse last;
  const grpc::Status status = call.Run(&last);
  if (call.is_cancelled()) {
    return absl::CancelledError("the dry run was cancelled");
  }
  DATASETD_RETURN_IF_ERROR(session_->ToStatus(status));
  if (!last.has_estimate()) {
    return absl::InternalError("the daemon ended the dry run without a result");
  }
  return std::move(*last.mutable_estimate());
}

absl::StatusOr<Push> Client::PushDataset(const v1::PushHeader& header,
                                         WaitFunction on_wait) {
  return Push::Begin(session_.get(), header,
                     on_wait ? std::move(on_wait) : limits_.on_wait);
}

absl::StatusOr<v1::Dataset> Client::GetDataset(const std::string& name) {
  v1::GetDatasetRequest request;
  request.set_name(name);
  DATASETD_ASSIGN_OR_RETURN(
      v1::GetDatasetResponse response,
      Call(session_.get(), session_->datasets(), limits_,
           &v1::DatasetService::Stub::AsyncGetDataset, request));
  session_->NoteReplicas(response.dataset());
  return std::move(*response.mutable_dataset());
}

absl::StatusOr<std::vector<v1::Dataset>> Client::ListDatasets() {
  std::vector<v1::Dataset> datasets;
  v1::ListDatasetsRequest request;
  do {
    DATASETD_ASSIGN_OR_RETURN(
        v1::ListDatasetsResponse response,
        Call(session_.get(), session_->datasets(), limits_,
             &v1::DatasetService::Stub::AsyncListDatasets, request));
    std::move(response.mutable_datasets()->begin(),
              response.mutable_datasets()->end(), std::back_inserter(datasets));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return datasets;
}

absl::Status Client::UnloadDataset(const std::string& name, bool force) {
  v1::UnloadDatasetRequest request;
  request.set_name(name);
  request.set_force(force);
  return Call(session_.get(), session_->datasets(), limits_,
              &v1::DatasetService::Stub::AsyncUnloadDataset, request)
      .status();
}

absl::Status Client::ReleaseDataset(const std::string& name) {
  v1::ReleaseDatasetRequest request;
  request.set_name(name);
  return Call(session_.get(), session_->datasets(), limits_,
              &v1::DatasetService::Stub::AsyncReleaseDataset, request)
      .status();
}

absl::StatusOr<Feed> Client::OpenFeed(const v1::FeedOptions& options,
                                      const Weights& weights) {
  v1::FeedOptions chosen = options;
  DATASETD_RETURN_IF_ERROR(ChooseDevice(session_.get(), &chosen));
  return Feed::Open(session_, chosen, weights, limits_);
}

absl::StatusOr<std::vector<v1::Feed>> Client::ListFeeds() {
  std::vector<v1::Feed> feeds;
  v1::ListFeedsRequest request;
  do {
    DATASETD_ASSIGN_OR_RETURN(
        v1::ListFeedsResponse response,
        Call(session_.get(), session_->feeds(), limits_,
             &v1::FeedService::Stub::AsyncListFeeds, request));
    std::move(response.mutable_feeds()->begin(),
              response.mutable_feeds()->end(), std::back_inserter(feeds));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return feeds;
}

absl::StatusOr<v1::GetFeedTransformsResponse> Client::GetFeedTransforms(
    uint64_t feed_id) {
  v1::GetFeedTransformsRequest request;
  request.set_feed_id(feed_id);
  return Call(session_.get(), session_->feeds(), limits_,
              &v1::FeedService::Stub::AsyncGetFeedTransforms, request);
}

absl::StatusOr<v1::ExplainTransformsResponse> Client::ExplainTransforms(
    const v1::ExplainTransformsRequest& request) {
  return Call(session_.get(), session_->feeds(), limits_,
              &v1::FeedService::Stub::AsyncExplainTransforms, request);
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus() {
  return Call(session_.get(), session_->server(), limits_,
              &v1::ServerService::Stub::AsyncGetStatus, v1::GetStatusRequest());
}

}  // namespace datasetd::client
