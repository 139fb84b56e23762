#include "server/metrics_endpoint.h"

#include <prometheus/exposer.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

constexpr char kThreads[] = "2";
constexpr char kRequestTimeoutMilliseconds[] = "5000";

}  // namespace

struct MetricsEndpoint::Impl {
  // The exposer goes first.
  std::shared_ptr<prometheus::Collectable> metrics;
  std::unique_ptr<prometheus::Exposer> exposer;
};

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    uint32_t port, std::shared_ptr<prometheus::Collectable> metrics) {
  const std::string address = absl::StrCat("127.0.0.1:", port);
  std::unique_ptr<prometheus::Exposer> exposer;
  // Its constructor says by an exception that the port is taken.
  try {
    exposer = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", address, "num_threads", kThreads,
        "request_timeout_ms", kRequestTimeoutMilliseconds, "enable_keep_alive",
        "no"});
    exposer->RegisterCollectable(metrics);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(
        "metrics_port: cannot listen on ", address,
        "; is the port taken? choose another, or 0 for no metrics (",
        error.what(), ")"));
  }
  auto impl = std::make_unique<Impl>();
  impl->metrics = std::move(metrics);
  impl->exposer = std::move(exposer);
  return std::unique_ptr<MetricsEndpoint>(
      new MetricsEndpoint(std::move(impl)));
}

MetricsEndpoint::MetricsEndpoint(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

}  // namespace datasetd
