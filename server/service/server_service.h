// datasetd.v1.ServerService. Thread-safe.

#ifndef DATASETD_SERVER_SERVICE_SERVER_SERVICE_H_
#define DATASETD_SERVER_SERVICE_SERVER_SERVICE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "datasetd/v1/server.grpc.pb.h"
#include "server/attach/session_table.h"
#include "server/dataset/device_table.h"
#include "server/feed/feed_table.h"
#include "server/registry/dataset_registry.h"
#include "server/service/request_context.h"

namespace datasetd {

class ServerService final : public v1::ServerService::Service {
 public:
  struct Parts {
    const RequestContext* context;
    const SessionTable* sessions;
    const DeviceTable* devices;
    const DatasetRegistry* datasets;
    const FeedTable* feeds;
    const Clock* clock;
    std::string version;
    std::vector<std::string> formats;
  };
  // The pointers in `parts` outlive the service.
  explicit ServerService(Parts parts)
      : parts_(std::move(parts)), started_(parts_.clock->Monotonic()) {}

  grpc::Status GetStatus(grpc::ServerContext* call,
                         const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override;

 private:
  const Parts parts_;
  const absl::Duration started_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_SERVER_SERVICE_H_
