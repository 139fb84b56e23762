// The daemon: devices, datasets, feeds, and the two sockets in front of them.

#ifndef DATASETD_SERVER_SERVER_H_
#define DATASETD_SERVER_SERVER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datasetd/v1/server.pb.h"

namespace datasetd {

class Server {
 public:
  // Opens the devices and both sockets and starts to serve; begins to load the
  // datasets of the configuration.
  // REQUIRES: `config` has its defaults (server/config.h).
  //   FAILED_PRECONDITION  another daemon serves this socket
  //   UNAVAILABLE          a configured GPU cannot be had
  //   and what system calls say of the sockets
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const v1::Config& config);

  // Ends at once what is still served. Removes the sockets.
  ~Server();

  // Waits until the datasets of the configuration are READY, or `timeout` has
  // passed (then DEADLINE_EXCEEDED, and it may be called again); the first
  // failure of a load.
  absl::Status AwaitDatasets(absl::Duration timeout);

  // Refuses new work, says goodbye to every lease, and waits for the clients to
  // let go, at most drain_timeout. True if all did.
  bool Drain();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVER_H_
