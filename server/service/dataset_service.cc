#include "server/service/dataset_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/background_thread.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "proto/push_metadata.h"
#include "server/dataset/sorted_options.h"
#include "server/load/load_request.h"
#include "server/load/source_scan.h"
#include "server/readers/images/pushed_images.h"
#include "server/readers/pushed_source.h"
#include "server/service/grpc_status.h"
#include "server/service/proto_convert.h"

namespace datasetd {
namespace {

constexpr absl::Duration kProgressPeriod = absl::Milliseconds(200);
constexpr int kMaxEstimates = 2;
constexpr int kMaxEstimatesPerUser = 1;
constexpr int kMaxPushes = 16;
constexpr int kMaxPushesPerUser = 4;
constexpr size_t kMaxBlockBytes = 2 << 20;
// How long a push waits for a place while its dataset is not there.
constexpr absl::Duration kMaxPushWait = absl::Seconds(10);

absl::Status ShuttingDown() {
  return absl::UnavailableError("the daemon is shutting down");
}

// `of_user` says where the limit of one user is configured, if it is.
UserPlaces::Refusal TooMany(const char* what, const char* of_user = "") {
  return [what, of_user](const UserPlaces::Usage& calls) {
    return absl::StrCat(what, ": ", calls.total, " are under way, ", calls.own,
                        " of them of uid ", calls.uid, "; there may be ",
                        calls.max_total, ", and ", calls.max_own,
                        " of one user", of_user,
                        ": try again when one has ended");
  };
}

// The messages of a push after its header.
class PushStream {
 public:
  PushStream(const RequestContext* context, grpc::ServerContext* call,
             grpc::ServerReader<v1::PushDatasetRequest>* reader)
      : context_(*context), call_(*call), reader_(*reader) {}

  // As PushedSource::NextBlock.
  absl::StatusOr<bool> NextBlock(std::string* block) {
    Begin(kPushByBlocks);
    if (!has_request_) {
      DATASETD_ASSIGN_OR_RETURN(const bool is_there, Read());
      if (!is_there) return false;
    }
    has_request_ = false;
    if (request_.part_case() != v1::PushDatasetRequest::kBlock ||
        request_.block().size() > kMaxBlockBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the header was followed by something else than blocks "
                       "of at most ",
                       kMaxBlockBytes, " bytes"));
    }
    *block = std::move(*request_.mutable_block());
    return true;
  }

  // As DatasetRegistry::DigestReceiver: returns none before the first block.
  absl::StatusOr<std::vector<Digest>> ReceiveDigests() {
    Begin(kPushByDigests);
    do {
      DATASETD_ASSIGN_OR_RETURN(has_request_, Read());
    } while (has_request_ && request_.has_block() && request_.block().empty());
    std::vector<Digest> digests;
    if (!has_request_ || !request_.has_digests()) return digests;
    for (const std::string& bytes : request_.digests().fields()) {
      Digest& digest = digests.emplace_back();
      if (bytes.size() != digest.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("digests: one has ", bytes.size(), " bytes, expected ",
                         digest.size()));
      }
      std::copy(bytes.begin(), bytes.end(), digest.begin());
    }
    return digests;
  }

 private:
  void Begin(const char* value) {
    if (is_begun_) return;
    call_.AddInitialMetadata(kPushBegunKey, value);
    reader_.SendInitialMetadata();
    is_begun_ = true;
  }

  // False at the end.
  absl::StatusOr<bool> Read() {
    const auto receiving = context_.ExpectMessage(call_);
    if (reader_.Read(&request_)) return true;
    if (!call_.IsCancelled()) return false;
    return absl::CancelledError("the push was broken off");
  }

  const RequestContext& context_;
  grpc::ServerContext& call_;
  grpc::ServerReader<v1::PushDatasetRequest>& reader_;
  bool is_begun_ = false;
  v1::PushDatasetRequest request_;
  bool has_request_ = false;  // that NextBlock has not returned
};

}  // namespace

DatasetService::DatasetService(
    const Limits& limits, const RequestContext* context,
    DatasetRegistry* datasets, SpoolSpace* push_spool,
    std::function<void(const Dataset& dataset)> end_feeds,
    std::function<void()> await_saved)
    : context_(context),
      datasets_(datasets),
      push_spool_(push_spool),
      end_feeds_(std::move(end_feeds)),
      await_saved_(std::move(await_saved)),
      loads_(limits.max_loads, limits.max_loads_per_user,
             TooMany("calls that wait for a load", " (user_limits.max_loads)")),
      pushes_(kMaxPushes, kMaxPushesPerUser, TooMany("pushes")),
      estimates_(kMaxEstimates, kMaxEstimatesPerUser, TooMany("dry runs")) {}

grpc::Status DatasetService::ToClientStatus(absl::Status status) const {
  // UNAVAILABLE, as of a disk that fails, would say that the daemon is gone.
  if (absl::IsUnavailable(status) && !context_->is_draining()) {
    status = absl::InternalError(status.message());
  }
  return ToGrpcStatus(status);
}

grpc::Status DatasetService::LoadDataset(
    grpc::ServerContext* call, const v1::LoadDatasetRequest* request,
    grpc::ServerWriter<v1::LoadDatasetResponse>* writer) {
  return ToClientStatus(Load(call, *request, writer));
}

absl::Status DatasetService::Load(
    grpc::ServerContext* call, const v1::LoadDatasetRequest& request,
    grpc::ServerWriter<v1::LoadDatasetResponse>* writer) {
  DATASETD_ASSIGN_OR_RETURN(const Caller caller, context_->AdmitWork(*call));
  DATASETD_ASSIGN_OR_RETURN(const UserPlaces::Place place,
                            loads_.Take(caller.uid));
  context_->AwaitEnds(caller);
  auto info = AwaitLoad(call, request.spec(), caller, writer);
  if (absl::IsCancelled(info.status())) {
    // Also when its session ends, or the daemon.
    DATASETD_RETURN_IF_ERROR(context_->Authenticate(*call).status());
    if (context_->is_draining()) return ShuttingDown();
  }
  DATASETD_RETURN_IF_ERROR(info.status());
  if (info->state == DatasetState::kFailed) return info->error;
  await_saved_();
  v1::LoadDatasetResponse response;
  *response.mutable_dataset() = std::move(info->dataset);
  writer->Write(response);
  return absl::OkStatus();
}

absl::StatusOr<DatasetInfo> DatasetService::AwaitLoad(
    grpc::ServerContext* call, const v1::DatasetSpec& spec,
    const Caller& caller, grpc::ServerWriter<v1::LoadDatasetResponse>* writer) {
  DATASETD_ASSIGN_OR_RETURN(const std::shared_ptr<LoadCall> load,
                            datasets_->BeginLoad(spec, caller));
  const auto wait = [&]() -> absl::StatusOr<DatasetInfo> {
    // A session may end after it was authenticated and before it took the hold;
    // its holds were released before this one.
    DATASETD_RETURN_IF_ERROR(context_->Authenticate(*call).status());
    while (true) {
      DATASETD_ASSIGN_OR_RETURN(DatasetInfo info, load->Await(kProgressPeriod));
      if (info.state == DatasetState::kUnloading) {
        return absl::NotFoundError("the dataset is being unloaded");
      }
      if (info.state != DatasetState::kLoading) return info;
      if (call->IsCancelled()) {
        return absl::CancelledError("the client gave up the call");
      }
      if (context_->is_draining()) return ShuttingDown();
      v1::LoadDatasetResponse response;
      *response.mutable_dataset() = std::move(info.dataset);
      writer->Write(response);  // if the client is gone, IsCancelled reports it
    }
  };
  auto info = wait();
  // Releasing the last hold cancels the load.
  if (!info.ok()) load->Cancel();
  return info;
}

grpc::Status DatasetService::PushDataset(
    grpc::ServerContext* call,
    grpc::ServerReader<v1::PushDatasetRequest>* reader,
    v1::PushDatasetResponse* response) {
  return ToClientStatus(Push(call, reader, response));
}

absl::Status DatasetService::Push(
    grpc::ServerContext* call,
    grpc::ServerReader<v1::PushDatasetRequest>* reader,
    v1::PushDatasetResponse* response) {
  DATASETD_ASSIGN_OR_RETURN(const Caller caller, context_->AdmitWork(*call));
  v1::PushDatasetRequest first;
  const bool is_read = [&] {
    const auto receiving = context_->ExpectMessage(*call);
    return reader->Read(&first);
  }();
  if (!is_read || !first.has_header()) {
    return absl::InvalidArgumentError("the first message holds no header");
  }
  DATASETD_ASSIGN_OR_RETURN(PushSpec push, PushSpecFromProto(first.header()));
  DATASETD_RETURN_IF_ERROR(CheckPushedInfo(&push.info, push.is_encoded));
  // All ranks of a job may push the same: one of them makes the dataset, and
  // the others are compared with it in their turns.
  const absl::Time deadline = absl::Now() + kMaxPushWait;
  const auto may_wait = [&] {
    if (!push.accepts_same || call->IsCancelled() || context_->is_draining()) {
      return false;
    }
    const auto present = datasets_->Hold(push.spec.name(), caller,
                                         /*only_describes=*/true);
    return absl::Now() < deadline ||
           (present.ok() && (present->state == DatasetState::kLoading ||
                             present->state == DatasetState::kReady));
  };
  DATASETD_ASSIGN_OR_RETURN(const UserPlaces::Place place,
                            pushes_.Await(caller.uid, may_wait));
  context_->AwaitEnds(caller);
  DATASETD_ASSIGN_OR_RETURN(DatasetInfo info,
                            PushSamples(call, reader, push, caller));
  DATASETD_RETURN_IF_ERROR(CheckStillHeld(*call, push.spec.name(), caller));
  await_saved_();
  *response->mutable_dataset() = std::move(info.dataset);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SampleSource>> DatasetService::OpenPush(
    grpc::ServerContext* call, const PushSpec& push, const Caller& caller,
    PushedSource::NextBlock next_block) {
  if (push.has_encoded()) {
    return OpenPushedImages(
        {.info = push.info,
         .is_encoded = push.is_encoded,
         .spec = push.spec,
         .account = datasets_->sources().AccountOf(caller.uid),
         .may_have_all = caller.is_privileged},
        std::move(next_block), [call] { return call->IsCancelled(); },
        push_spool_);
  }
  if (push.spec.options_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: '", SortedOptions(push.spec).begin()->first,
                     "' is of encoded images, and no field is encoded"));
  }
  return std::make_unique<PushedSource>(
      push.info, std::move(next_block),
      datasets_->sources().AccountOf(caller.uid));
}

absl::StatusOr<DatasetInfo> DatasetService::PushSamples(
    grpc::ServerContext* call,
    grpc::ServerReader<v1::PushDatasetRequest>* reader, const PushSpec& push,
    const Caller& caller) {
  PushStream stream(context_, call, reader);
  const auto next_block = [&](std::string* block) {
    return stream.NextBlock(block);
  };
  DatasetRegistry::PushCalls calls = {
      .cancel = [call] { call->TryCancel(); },
      .is_given_up = [call] { return call->IsCancelled(); }};
  if (push.accepts_same) {
    calls.receive_digests = [&] { return stream.ReceiveDigests(); };
  }
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<SampleSource> source,
                            OpenPush(call, push, caller, next_block));
  return datasets_->Push(push.spec, std::move(source), caller, calls);
}

grpc::Status DatasetService::EstimateLoad(
    grpc::ServerContext* call, const v1::EstimateLoadRequest* request,
    grpc::ServerWriter<v1::EstimateLoadResponse>* writer) {
  return ToClientStatus(Estimate(call, *request, writer));
}

absl::Status DatasetService::Estimate(
    grpc::ServerContext* call, const v1::EstimateLoadRequest& request,
    grpc::ServerWriter<v1::EstimateLoadResponse>* writer) {
  DATASETD_ASSIGN_OR_RETURN(const Caller caller, context_->AdmitWork(*call));
  DATASETD_ASSIGN_OR_RETURN(const UserPlaces::Place place,
                            estimates_.Take(caller.uid));
  const auto scan = std::make_shared<SourceScan>();
  Mutex mutex;
  absl::StatusOr<v1::LoadEstimate> estimate;
  bool is_done = false;
  DATASETD_ASSIGN_OR_RETURN(std::thread runner, StartThread([&] {
                              BecomeBackgroundThread("scan");
                              auto result = datasets_->sources().Estimate(
                                  request.spec(), caller, scan);
                              MutexLock lock(&mutex);
                              estimate = std::move(result);
                              is_done = true;
                            }));
  v1::EstimateLoadResponse response;
  while (true) {
    {
      MutexLock lock(&mutex);
      if (mutex.AwaitWithTimeout(Condition(&is_done), kProgressPeriod)) break;
    }
    if (call->IsCancelled() || context_->is_draining()) scan->Cancel();
    response.set_num_samples(scan->num_samples);
    response.set_num_samples_scanned(scan->num_samples_scanned);
    response.set_num_entries_scanned(
        response.num_samples() == 0 ? scan->num_entries.load() : 0);
    writer->Write(response);
  }
  runner.join();
  if (absl::IsCancelled(estimate.status()) && context_->is_draining()) {
    return ShuttingDown();
  }
  DATASETD_RETURN_IF_ERROR(estimate.status());
  response.set_num_entries_scanned(0);
  response.set_num_samples(scan->num_samples);
  response.set_num_samples_scanned(scan->num_samples_scanned);
  *response.mutable_estimate() = *std::move(estimate);
  writer->Write(response);
  return absl::OkStatus();
}

// A session may end after it was authenticated and before it took the hold; its
// holds were released before this one.
absl::Status DatasetService::CheckStillHeld(const grpc::ServerContext& call,
                                            const std::string& name,
                                            const Caller& caller) {
  const absl::Status status = context_->Authenticate(call).status();
  if (!status.ok()) datasets_->Release(name, caller).IgnoreError();
  return status;
}

grpc::Status DatasetService::GetDataset(grpc::ServerContext* call,
                                        const v1::GetDatasetRequest* request,
                                        v1::GetDatasetResponse* response) {
  const auto run = [&]() -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(const Caller caller, context_->AdmitWork(*call));
    DATASETD_ASSIGN_OR_RETURN(DatasetInfo info,
                              datasets_->Hold(request->name(), caller));
    DATASETD_RETURN_IF_ERROR(CheckStillHeld(*call, request->name(), caller));
    *response->mutable_dataset() = std::move(info.dataset);
    return absl::OkStatus();
  };
  return ToGrpcStatus(run());
}

grpc::Status DatasetService::ListDatasets(
    grpc::ServerContext* call, const v1::ListDatasetsRequest* request,
    v1::ListDatasetsResponse* response) {
  const auto caller = context_->Authenticate(*call);
  if (!caller.ok()) return ToGrpcStatus(caller.status());
  const size_t page_size = PageSize(request->page_size());
  // One more, to know whether there is another page.
  std::vector<DatasetInfo> infos =
      datasets_->List(*caller, request->page_token(), page_size + 1);
  for (size_t i = 0; i < std::min(infos.size(), page_size); ++i) {
    *response->add_datasets() = std::move(infos[i].dataset);
  }
  if (infos.size() > page_size) {
    response->set_next_page_token(infos[page_size - 1].spec->name());
  }
  return grpc::Status::OK;
}

grpc::Status DatasetService::UnloadDataset(
    grpc::ServerContext* call, const v1::UnloadDatasetRequest* request,
    v1::UnloadDatasetResponse*) {
  return ToGrpcStatus(Unload(*call, *request));
}

absl::Status DatasetService::Unload(const grpc::ServerContext& call,
                                    const v1::UnloadDatasetRequest& request) {
  DATASETD_ASSIGN_OR_RETURN(const Caller caller, context_->AdmitWork(call));
  context_->AwaitEnds(caller);
  DATASETD_ASSIGN_OR_RETURN(const Replicas replicas,
                            datasets_->Unload(request.name(), request.force(),
                                              caller, request.spec_id()));
  for (const auto& replica : replicas) end_feeds_(*replica);
  await_saved_();
  return absl::OkStatus();
}

grpc::Status DatasetService::ReleaseDataset(
    grpc::ServerContext* call, const v1::ReleaseDatasetRequest* request,
    v1::ReleaseDatasetResponse*) {
  const auto caller = context_->Authenticate(*call);
  if (!caller.ok()) return ToGrpcStatus(caller.status());
  return ToGrpcStatus(datasets_->Release(request->name(), *caller));
}

}  // namespace datasetd
