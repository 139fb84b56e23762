// Linked in the place of metrics_endpoint.cc into executables that need no
// shared library: Debian's prometheus-cpp has no archive.

#include "absl/status/status.h"
#include "server/metrics_endpoint.h"

namespace datasetd {

struct MetricsEndpoint::Impl {};

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    uint32_t, std::shared_ptr<prometheus::Collectable>) {
  return absl::UnimplementedError(
      "metrics_port: this build has no metrics (the self-contained release "
      "leaves them out); set it to 0, or build from source");
}

MetricsEndpoint::~MetricsEndpoint() = default;

}  // namespace datasetd
