// A daemon in the test's process: gRPC services and a socket that answer as the
// test says, and one feed.

#ifndef DATASETD_TESTS_CLIENT_FAKE_DAEMON_H_
#define DATASETD_TESTS_CLIENT_FAKE_DAEMON_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "datasetd/v1/dataset.grpc.pb.h"
#include "datasetd/v1/feed.grpc.pb.h"
#include "datasetd/v1/server.grpc.pb.h"
#include "tests/client/fake_attach_server.h"
#include "tests/client/fake_feed.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::testing {

class FakeDaemon final : public v1::DatasetService::Service,
                         public v1::FeedService::Service,
                         public v1::ServerService::Service {
 public:
  explicit FakeDaemon(const FakeFeed::Options& options = {});
  ~FakeDaemon() override;

  std::string address() const { return directory_.File("datasetd.sock"); }
  FakeFeed& feed() { return feed_; }
  FakeAttachServer& attach() { return attach_; }

  // Sets the status that ends the calls of LoadDataset.
  void SetLoadStatus(grpc::Status status);
  // Calls of LoadDataset (behind the first message), OpenFeed, SendIndices and
  // GetStatus wait for their cancellation.
  void SetHangs(bool hangs);
  // Adds an answer for OpenFeed. Its calls give these in order, and after that
  // the memfd feed. An export kind that was excluded is left out.
  void OfferExport(const v1::SlabExport& slab);
  // Nothing is offered once memfd was excluded.
  std::vector<v1::OpenFeedRequest> open_requests();
  std::vector<v1::LoadDatasetRequest> load_requests();
  std::vector<v1::SendIndicesRequest> index_requests();
  // Sets the status that ends the calls of SendIndices.
  void SetIndicesStatus(grpc::Status status);

  // As SIGKILL does.
  void Die();

  grpc::Status LoadDataset(
      grpc::ServerContext* context, const v1::LoadDatasetRequest* request,
      grpc::ServerWriter<v1::LoadDatasetResponse>* writer) override;
  grpc::Status GetDataset(grpc::ServerContext* context,
                          const v1::GetDatasetRequest* request,
                          v1::GetDatasetResponse* response) override;
  // Two datasets, "fake" and "second", each on a page.
  grpc::Status ListDatasets(grpc::ServerContext* context,
                            const v1::ListDatasetsRequest* request,
                            v1::ListDatasetsResponse* response) override;
  grpc::Status OpenFeed(grpc::ServerContext* context,
                        const v1::OpenFeedRequest* request,
                        v1::OpenFeedResponse* response) override;
  grpc::Status SendIndices(grpc::ServerContext* context,
                           const v1::SendIndicesRequest* request,
                           v1::SendIndicesResponse* response) override;
  grpc::Status GetStatus(grpc::ServerContext* context,
                         const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;

 private:
  void HangIfAsked(const grpc::ServerContext& context);
  v1::Dataset MakeDataset(v1::DatasetState state);

  TempDir directory_{TempDir::Place::kShortPath};
  FakeFeed feed_;
  FakeAttachServer attach_;
  absl::Mutex mutex_;
  grpc::Status load_status_ ABSL_GUARDED_BY(mutex_);
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::SlabExport> offers_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::OpenFeedRequest> open_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::LoadDatasetRequest> load_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::SendIndicesRequest> index_requests_ ABSL_GUARDED_BY(mutex_);
  grpc::Status indices_status_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;
};

// A feed of its dataset.
inline v1::FeedOptions SomeFeed() {
  v1::FeedOptions options;
  options.set_dataset("fake");
  options.set_batch_size(4);
  return options;
}

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CLIENT_FAKE_DAEMON_H_
