// The HTTP endpoint that Prometheus scrapes: http://127.0.0.1:PORT/metrics. On
// the loopback device only: it knows no users, and names of datasets and feeds
// are on it.

#ifndef DATASETD_SERVER_METRICS_ENDPOINT_H_
#define DATASETD_SERVER_METRICS_ENDPOINT_H_

#include <prometheus/collectable.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace datasetd {

class MetricsEndpoint {
 public:
  // `port` is in 1..65535.
  //   UNAVAILABLE  the port cannot be had
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      uint32_t port, std::shared_ptr<prometheus::Collectable> metrics);

  // Ends its threads; nobody collects afterwards.
  ~MetricsEndpoint();

 private:
  struct Impl;
  explicit MetricsEndpoint(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_METRICS_ENDPOINT_H_
