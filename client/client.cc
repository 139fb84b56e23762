#include "client/client.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "client/connection/session.h"
#include "client/connection/unary_call.h"
#include "client/device/cuda_driver.h"
#include "client/path_advice.h"

namespace datasetd::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

template <typename Response>
absl::StatusOr<Response> ResponseTo(const Message& request, Client* client) {
  Response response;
  DATASETD_RETURN_IF_ERROR(client->Call(request, &response));
  return response;
}

// Moves the token of the next page from `response` to `request`. Returns false
// if there is none.
bool TurnPage(Message* response, Message* request) {
  const FieldDescriptor* const next =
      response->GetDescriptor()->FindFieldByName("next_page_token");
  if (next == nullptr) return false;
  std::string token = response->GetReflection()->GetString(*response, next);
  if (token.empty()) return false;
  response->GetReflection()->ClearField(response, next);
  request->GetReflection()->SetString(
      request, request->GetDescriptor()->FindFieldByName("page_token"),
      std::move(token));
  return true;
}

// Makes the path absolute, as the daemon requires.
absl::Status MakePathAbsolute(v1::DatasetSpec* spec) {
  if (spec->path().empty()) return absl::OkStatus();
  if (IsUrl(spec->path())) {
    return absl::InvalidArgumentError(PathAdvice(spec->path()));
  }
  std::error_code error;
  const auto path = std::filesystem::absolute(spec->path(), error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("path '", spec->path(), "': ", error.message()));
  }
  spec->set_path(path.lexically_normal().string());
  return absl::OkStatus();
}

template <typename Request, typename Response>
using StartFunction = std::unique_ptr<grpc::ClientAsyncReader<Response>> (
    v1::DatasetService::Stub::*)(grpc::ClientContext*, const Request&,
                                 grpc::CompletionQueue*, void* tag);

// Makes a call about `spec` whose answer is a stream, without a thread, and
// returns the last message. Reports each message, and the last one while it
// waits; CANCELLED with the text `cancelled` if `report` returned false.
template <typename Request, typename Response, typename Report>
absl::StatusOr<Response> ReadStream(Session* session,
                                    StartFunction<Request, Response> start,
                                    v1::DatasetSpec spec, const Report& report,
                                    const std::string& cancelled) {
  DATASETD_RETURN_IF_ERROR(session->CheckProcess());
  DATASETD_RETURN_IF_ERROR(MakePathAbsolute(&spec));
  Request request;
  *request.mutable_spec() = std::move(spec);
  Response last;
  grpc::ClientContext context;
  session->Prepare(&context, absl::InfiniteDuration());
  bool is_cancelled = false;
  const auto tell = [&] {
    if (is_cancelled || report(last)) return;
    is_cancelled = true;
    context.TryCancel();
  };
  std::unique_ptr<grpc::ClientAsyncReader<Response>> reader;
  CallQueue queue;
  reader =
      (session->datasets()->*start)(&context, request, queue.get(), &queue);
  bool is_open = queue.Await(tell);
  while (is_open) {
    Response response;
    reader->Read(&response, &queue);
    is_open = queue.Await(tell);
    if (!is_open) break;
    last = std::move(response);
    tell();
  }
  grpc::Status status;
  reader->Finish(&status, &queue);
  queue.Await(tell);
  if (is_cancelled) return absl::CancelledError(cancelled);
  DATASETD_RETURN_IF_ERROR(ExplainMissingFile(session->ToStatus(status)));
  return last;
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
  const std::string name = spec.name();
  DATASETD_ASSIGN_OR_RETURN(
      v1::LoadDatasetResponse last,
      ReadStream(
          session_.get(), &v1::DatasetService::Stub::AsyncLoadDataset,
          std::move(spec),
          [&](const v1::LoadDatasetResponse& response) {
            return limits_.MayGoOn() &&
                   (!on_progress || on_progress(response.dataset()));
          },
          absl::StrCat("loading dataset '", name, "' was cancelled")));
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
  DATASETD_ASSIGN_OR_RETURN(
      v1::EstimateLoadResponse last,
      ReadStream(
          session_.get(), &v1::DatasetService::Stub::AsyncEstimateLoad,
          std::move(spec),
          [&](const v1::EstimateLoadResponse& response) {
            return limits_.MayGoOn() && (!on_progress || on_progress(response));
          },
          "the dry run was cancelled"));
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
  DATASETD_ASSIGN_OR_RETURN(v1::GetDatasetResponse response,
                            ResponseTo<v1::GetDatasetResponse>(request, this));
  return std::move(*response.mutable_dataset());
}

absl::StatusOr<std::vector<v1::Dataset>> Client::ListDatasets() {
  DATASETD_ASSIGN_OR_RETURN(
      const v1::ListDatasetsResponse response,
      ResponseTo<v1::ListDatasetsResponse>(v1::ListDatasetsRequest(), this));
  return std::vector<v1::Dataset>(response.datasets().begin(),
                                  response.datasets().end());
}

absl::Status Client::UnloadDataset(const std::string& name, bool force) {
  v1::UnloadDatasetRequest request;
  request.set_name(name);
  request.set_force(force);
  return ResponseTo<v1::UnloadDatasetResponse>(request, this).status();
}

absl::Status Client::ReleaseDataset(const std::string& name) {
  v1::ReleaseDatasetRequest request;
  request.set_name(name);
  return ResponseTo<v1::ReleaseDatasetResponse>(request, this).status();
}

absl::StatusOr<Feed> Client::OpenFeed(const v1::FeedOptions& options,
                                      const FeedArrays& arrays) {
  v1::FeedOptions chosen = options;
  DATASETD_RETURN_IF_ERROR(ChooseDevice(session_.get(), &chosen));
  return Feed::Open(session_, chosen, arrays, limits_);
}

absl::StatusOr<std::vector<v1::Feed>> Client::ListFeeds() {
  DATASETD_ASSIGN_OR_RETURN(
      const v1::ListFeedsResponse response,
      ResponseTo<v1::ListFeedsResponse>(v1::ListFeedsRequest(), this));
  return std::vector<v1::Feed>(response.feeds().begin(),
                               response.feeds().end());
}

absl::StatusOr<v1::GetFeedTransformsResponse> Client::GetFeedTransforms(
    uint64_t feed_id) {
  v1::GetFeedTransformsRequest request;
  request.set_feed_id(feed_id);
  return ResponseTo<v1::GetFeedTransformsResponse>(request, this);
}

absl::StatusOr<v1::ExplainTransformsResponse> Client::ExplainTransforms(
    const v1::ExplainTransformsRequest& request) {
  return ResponseTo<v1::ExplainTransformsResponse>(request, this);
}

absl::StatusOr<Samples> Client::ReadSamples(
    const v1::ReadSamplesRequest& request,
    std::optional<absl::Duration> timeout) {
  DATASETD_RETURN_IF_ERROR(session_->CheckProcess());
  CallLimits limits = limits_;
  if (timeout.has_value()) limits.timeout = *timeout;
  Samples samples;
  v1::ReadSamplesResponse response;
  DATASETD_RETURN_IF_ERROR(session_->ToStatus(
      StreamCall(session_.get(), request, limits, &response, [&] {
        if (response.has_info()) {
          samples.info = std::move(*response.mutable_info());
          samples.data.reserve(samples.info.size_bytes());
        }
        samples.data += response.data();
      })));
  if (samples.data.size() != samples.info.size_bytes()) {
    return absl::InternalError("the daemon sent other data than it announced");
  }
  return samples;
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus() {
  return ResponseTo<v1::GetStatusResponse>(v1::GetStatusRequest(), this);
}

absl::Status Client::CheckProcess() const { return session_->CheckProcess(); }

const Address& Client::address() const { return session_->address(); }

absl::Status Client::Call(const Message& request, Message* response) {
  DATASETD_RETURN_IF_ERROR(session_->CheckProcess());
  const std::unique_ptr<Message> next(request.New());
  next->CopyFrom(request);
  const std::unique_ptr<Message> page(response->New());
  response->Clear();
  do {
    DATASETD_RETURN_IF_ERROR(session_->ToStatus(
        UnaryCall(session_.get(), *next, limits_, page.get())));
    response->MergeFrom(*page);
  } while (TurnPage(response, next.get()));
  if (const auto* const got =
          google::protobuf::DynamicCastToGenerated<v1::GetDatasetResponse>(
              response)) {
    session_->NoteReplicas(got->dataset());
  }
  return absl::OkStatus();
}

}  // namespace datasetd::client
