// datasetd.v1.DatasetService. Thread-safe.

#ifndef DATASETD_SERVER_SERVICE_DATASET_SERVICE_H_
#define DATASETD_SERVER_SERVICE_DATASET_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datasetd/v1/dataset.grpc.pb.h"
#include "server/dataset/user_places.h"
#include "server/files/spool.h"
#include "server/readers/pushed_source.h"
#include "server/registry/dataset_registry.h"
#include "server/service/proto_convert.h"
#include "server/service/request_context.h"

namespace datasetd {

class DatasetService final : public v1::DatasetService::Service {
 public:
  // Limits on concurrent calls, in total and per user.
  struct Limits {
    int max_loads = 0;
    int max_loads_per_user = 0;
  };

  // All pointers outlive the service. `end_feeds` ends the leases of a
  // dataset's feeds because it is unloaded. `await_saved` blocks, for a bounded
  // time, until changes are saved for a restart.
  DatasetService(const Limits& limits, const RequestContext* context,
                 DatasetRegistry* datasets, SpoolSpace* push_spool,
                 std::function<void(const Dataset& dataset)> end_feeds,
                 std::function<void()> await_saved);

  grpc::Status LoadDataset(
      grpc::ServerContext* call, const v1::LoadDatasetRequest* request,
      grpc::ServerWriter<v1::LoadDatasetResponse>* writer) override;
  grpc::Status PushDataset(grpc::ServerContext* call,
                           grpc::ServerReader<v1::PushDatasetRequest>* reader,
                           v1::PushDatasetResponse* response) override;
  grpc::Status EstimateLoad(
      grpc::ServerContext* call, const v1::EstimateLoadRequest* request,
      grpc::ServerWriter<v1::EstimateLoadResponse>* writer) override;
  grpc::Status GetDataset(grpc::ServerContext* call,
                          const v1::GetDatasetRequest* request,
                          v1::GetDatasetResponse* response) override;
  grpc::Status ListDatasets(grpc::ServerContext* call,
                            const v1::ListDatasetsRequest* request,
                            v1::ListDatasetsResponse* response) override;
  grpc::Status UnloadDataset(grpc::ServerContext* call,
                             const v1::UnloadDatasetRequest* request,
                             v1::UnloadDatasetResponse* response) override;
  grpc::Status ReleaseDataset(grpc::ServerContext* call,
                              const v1::ReleaseDatasetRequest* request,
                              v1::ReleaseDatasetResponse* response) override;

 private:
  absl::Status Load(grpc::ServerContext* call,
                    const v1::LoadDatasetRequest& request,
                    grpc::ServerWriter<v1::LoadDatasetResponse>* writer);
  // Begins the load and tells its progress until it is READY or FAILED. An
  // error if it is neither; then the call holds nothing.
  absl::StatusOr<DatasetInfo> AwaitLoad(
      grpc::ServerContext* call, const v1::DatasetSpec& spec,
      const Caller& caller,
      grpc::ServerWriter<v1::LoadDatasetResponse>* writer);
  // Returns what the client of a load, push or dry run gets.
  grpc::Status ToClientStatus(absl::Status status) const;
  absl::Status Push(grpc::ServerContext* call,
                    grpc::ServerReader<v1::PushDatasetRequest>* reader,
                    v1::PushDatasetResponse* response);
  // Returns the source of the push's samples. `next_block` as PushedSource's.
  absl::StatusOr<std::unique_ptr<SampleSource>> OpenPush(
      grpc::ServerContext* call, const PushSpec& push, const Caller& caller,
      PushedSource::NextBlock next_block);
  absl::StatusOr<DatasetInfo> PushSamples(
      grpc::ServerContext* call,
      grpc::ServerReader<v1::PushDatasetRequest>* reader, const PushSpec& push,
      const Caller& caller);
  // Runs the dry run on a thread of its own, and tells its progress.
  absl::Status Estimate(grpc::ServerContext* call,
                        const v1::EstimateLoadRequest& request,
                        grpc::ServerWriter<v1::EstimateLoadResponse>* writer);
  absl::Status CheckStillHeld(const grpc::ServerContext& call,
                              const std::string& name, const Caller& caller);
  absl::Status Unload(const grpc::ServerContext& call,
                      const v1::UnloadDatasetRequest& request);

  const RequestContext* const context_;
  DatasetRegistry* const datasets_;
  SpoolSpace* const push_spool_;
  const std::function<void(const Dataset& dataset)> end_feeds_;
  const std::function<void()> await_saved_;
  // Each call holds a thread.
  UserPlaces loads_;
  UserPlaces pushes_;
  // Dry runs, which read a source on all cores.
  UserPlaces estimates_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_DATASET_SERVICE_H_
