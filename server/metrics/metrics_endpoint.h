// The HTTP endpoint that Prometheus scrapes: http://127.0.0.1:PORT/metrics.
// Loopback only: it has no authentication and shows names of datasets and
// feeds.
//
// One thread serves all connections concurrently. A connection is closed if it
// does not send its request or read the response within a second or two, or if
// there are too many and it is the oldest; so no client can block others.

#ifndef DATASETD_SERVER_METRICS_METRICS_ENDPOINT_H_
#define DATASETD_SERVER_METRICS_METRICS_ENDPOINT_H_

#include <prometheus/collectable.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "server/rpc/token_bucket.h"

namespace datasetd {

class MetricsEndpoint {
 public:
  // `port` is in 1..65535. `clock` outlives the endpoint.
  //   UNAVAILABLE  the port is not available
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      uint32_t port, std::shared_ptr<prometheus::Collectable> metrics,
      const Clock* clock);

  // Ends the thread; nothing is collected afterwards.
  ~MetricsEndpoint();

 private:
  struct Connection {
    FileDescriptor fd;
    absl::Duration deadline;
    std::string request;
    // Null until the request is complete.
    std::shared_ptr<const std::string> answer;
    size_t sent_bytes = 0;
  };

  MetricsEndpoint(FileDescriptor listener, FileDescriptor stop,
                  std::shared_ptr<prometheus::Collectable> metrics,
                  const Clock* clock);
  void Run();
  void Accept(absl::Duration now);
  // Each returns false when the connection is to be closed.
  bool Read(Connection& connection, absl::Duration now);
  bool Write(Connection& connection) const;
  std::shared_ptr<const std::string> Answer(const std::string& request);
  std::shared_ptr<const std::string> Page();

  const FileDescriptor listener_;
  const FileDescriptor stop_;  // eventfd
  const std::shared_ptr<prometheus::Collectable> metrics_;
  const Clock* const clock_;
  std::list<Connection> connections_;  // in order of arrival
  // The last page, and whether it is of this round, whose requests share it.
  std::shared_ptr<const std::string> page_;
  bool is_page_current_ = false;
  TokenBucket pages_;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_METRICS_METRICS_ENDPOINT_H_
