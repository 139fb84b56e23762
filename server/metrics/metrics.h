// The daemon's Prometheus metrics, listed in docs/operations.md.
//
// Values are read from the daemon's tables on each scrape, at no cost to
// serving. Thread-safe.

#ifndef DATASETD_SERVER_METRICS_METRICS_H_
#define DATASETD_SERVER_METRICS_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "server/attach/attach_server.h"
#include "server/attach/session_table.h"
#include "server/cache/dataset_cache.h"
#include "server/dataset/device_table.h"
#include "server/feed/feed_table.h"
#include "server/registry/dataset_registry.h"
#include "server/rpc/call_guard.h"
#include "server/rpc/request_counter.h"
#include "server/rpc/rpc_gate.h"
#include "server/service/request_context.h"

namespace datasetd {

class Metrics final : public prometheus::Collectable {
 public:
  // All pointers outlive the object.
  struct Parts {
    const DeviceTable* devices = nullptr;
    const DatasetCache* cache = nullptr;  // may be null
    const DatasetRegistry* datasets = nullptr;
    const FeedTable* feeds = nullptr;
    const SessionTable* sessions = nullptr;
    const AttachServer* attach = nullptr;
    const RequestContext* context = nullptr;
    const RequestCounter* requests = nullptr;
    const RpcGate::Counters* rpc = nullptr;
    const CallGuard* calls = nullptr;
    const Clock* clock = nullptr;
    std::string version;
  };
  explicit Metrics(Parts parts);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Parts parts_;
  const double start_time_seconds_;  // Unix time
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_METRICS_METRICS_H_
