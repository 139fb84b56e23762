#include "server/service/feed_service.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/service/grpc_status.h"
#include "server/service/proto_convert.h"

namespace datasetd {

grpc::Status FeedService::OpenFeed(grpc::ServerContext* call,
                                   const v1::OpenFeedRequest* request,
                                   v1::OpenFeedResponse* response) {
  const auto run = [&]() -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(const Caller caller, context_->AdmitWork(*call));
    context_->AwaitEnds(caller);
    DATASETD_ASSIGN_OR_RETURN(*response, feeds_->Open(*request, caller));
    // If the session ended meanwhile, its feeds were closed before this one
    // existed.
    if (absl::Status ended = context_->Authenticate(*call).status();
        !ended.ok()) {
      feeds_->EndSession(caller.session_id);
      return ended;
    }
    return absl::OkStatus();
  };
  return ToGrpcStatus(run());
}

grpc::Status FeedService::SendIndices(grpc::ServerContext* call,
                                      const v1::SendIndicesRequest* request,
                                      v1::SendIndicesResponse*) {
  const auto caller = context_->AdmitWork(*call);
  if (!caller.ok()) return ToGrpcStatus(caller.status());
  const ClientOrder::Block block = {
      .generation = request->generation(),
      .start = {request->start().epoch(), request->start().batch()},
      .first_row = request->first_row(),
      .batch_sizes = request->batch_sizes(),
      .indices = request->indices()};
  return ToGrpcStatus(UnlessDraining(
      *call,
      feeds_->SendIndices(request->feed_id(), caller->session_id, block)));
}

absl::Status FeedService::UnlessDraining(const grpc::ServerContext& call,
                                         absl::Status sent) const {
  if (!absl::IsNotFound(sent)) return sent;
  const absl::Status admitted = context_->AdmitWork(call).status();
  return admitted.ok() ? sent : admitted;
}

grpc::Status FeedService::ListFeeds(grpc::ServerContext* call,
                                    const v1::ListFeedsRequest* request,
                                    v1::ListFeedsResponse* response) {
  const auto run = [&]() -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(const Caller caller,
                              context_->Authenticate(*call));
    uint64_t after = 0;
    if (!request->page_token().empty() &&
        !absl::SimpleAtoi(request->page_token(), &after)) {
      return absl::InvalidArgumentError(
          "page_token: is not the next_page_token of a page before");
    }
    const size_t page_size = PageSize(request->page_size());
    // One more, to know whether there is another page.
    std::vector<FeedInfo> infos = feeds_->List(caller, after, page_size + 1);
    for (size_t i = 0; i < std::min(infos.size(), page_size); ++i) {
      FeedInfo& info = infos[i];
      // Feeds that have ended are not listed, though their slabs may linger.
      if (info.phase != FeedPhase::kPending &&
          info.phase != FeedPhase::kAttached) {
        continue;
      }
      if (!caller.is_privileged && info.owner.uid != caller.uid) {
        info.feed.set_pid(0);
        info.feed.set_seed(0);
      }
      HistogramToProto(info.hand_over, info.feed.mutable_hand_over());
      *response->add_feeds() = info.feed;
    }
    if (infos.size() > page_size) {
      response->set_next_page_token(
          absl::StrCat(infos[page_size - 1].feed.feed_id()));
    }
    return absl::OkStatus();
  };
  return ToGrpcStatus(run());
}

grpc::Status FeedService::GetFeedTransforms(
    grpc::ServerContext* call, const v1::GetFeedTransformsRequest* request,
    v1::GetFeedTransformsResponse* response) {
  const auto run = [&]() -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(const Caller caller,
                              context_->Authenticate(*call));
    DATASETD_ASSIGN_OR_RETURN(const std::string message,
                              feeds_->Transforms(request->feed_id(), caller));
    if (!response->ParseFromString(message)) {
      return absl::InternalError("the kept transforms do not parse");
    }
    return absl::OkStatus();
  };
  return ToGrpcStatus(run());
}

grpc::Status FeedService::ExplainTransforms(
    grpc::ServerContext* call, const v1::ExplainTransformsRequest* request,
    v1::ExplainTransformsResponse* response) {
  const auto run = [&]() -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(const Caller caller, context_->AdmitWork(*call));
    DATASETD_ASSIGN_OR_RETURN(*response, feeds_->Explain(*request, caller));
    return absl::OkStatus();
  };
  return ToGrpcStatus(run());
}

grpc::Status FeedService::ReadSamples(
    grpc::ServerContext* call, const v1::ReadSamplesRequest* request,
    grpc::ServerWriter<v1::ReadSamplesResponse>* writer) {
  const auto run = [&]() -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(const Caller caller, context_->AdmitWork(*call));
    context_->AwaitEnds(caller);
    const ReadSink sink = {
        .send = [&](const v1::ReadSamplesResponse& message) -> absl::Status {
          if (writer->Write(message)) return absl::OkStatus();
          return absl::CancelledError("the client reads no answer");
        },
        .is_cancelled = [call] { return call->IsCancelled(); }};
    return feeds_->Read(*request, caller, sink);
  };
  return ToGrpcStatus(run());
}

}  // namespace datasetd
