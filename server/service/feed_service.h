// datasetd.v1.FeedService. Thread-safe.

#ifndef DATASETD_SERVER_SERVICE_FEED_SERVICE_H_
#define DATASETD_SERVER_SERVICE_FEED_SERVICE_H_

#include "datasetd/v1/feed.grpc.pb.h"
#include "server/feed/feed_table.h"
#include "server/service/request_context.h"

namespace datasetd {

class FeedService final : public v1::FeedService::Service {
 public:
  // Both pointers outlive the service.
  FeedService(const RequestContext* context, FeedTable* feeds)
      : context_(context), feeds_(feeds) {}

  grpc::Status OpenFeed(grpc::ServerContext* call,
                        const v1::OpenFeedRequest* request,
                        v1::OpenFeedResponse* response) override;
  grpc::Status SendIndices(grpc::ServerContext* call,
                           const v1::SendIndicesRequest* request,
                           v1::SendIndicesResponse* response) override;
  grpc::Status ListFeeds(grpc::ServerContext* call,
                         const v1::ListFeedsRequest* request,
                         v1::ListFeedsResponse* response) override;
  grpc::Status GetFeedTransforms(
      grpc::ServerContext* call, const v1::GetFeedTransformsRequest* request,
      v1::GetFeedTransformsResponse* response) override;
  grpc::Status ExplainTransforms(
      grpc::ServerContext* call, const v1::ExplainTransformsRequest* request,
      v1::ExplainTransformsResponse* response) override;
  grpc::Status ReadSamples(
      grpc::ServerContext* call, const v1::ReadSamplesRequest* request,
      grpc::ServerWriter<v1::ReadSamplesResponse>* writer) override;

 private:
  // Returns `sent`, or why the daemon admits no work if that is the reason for
  // NOT_FOUND: a drain that began meanwhile may have ended the feed.
  absl::Status UnlessDraining(const grpc::ServerContext& call,
                              absl::Status sent) const;

  const RequestContext* const context_;
  FeedTable* const feeds_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_FEED_SERVICE_H_
