// The daemon: devices, datasets, feeds, and the two sockets in front of them.

#ifndef DATASETD_SERVER_SERVER_H_
#define DATASETD_SERVER_SERVER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datasetd/v1/server.pb.h"
#include "server/feed/producer.h"
#include "server/systemd/socket_activation.h"

namespace datasetd {

class Server {
 public:
  // Opens the devices and both sockets, or takes those given, and starts to
  // serve; begins to load the datasets of the configuration.
  // REQUIRES: `config` has its defaults (server/config/config.h).
  //   FAILED_PRECONDITION  another daemon serves this socket
  //   INVALID_ARGUMENT     `sockets` are others than the configuration names
  //   UNAVAILABLE          a configured GPU, or the port of the metrics, cannot
  //                        be had
  //   and what system calls say of the sockets
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const v1::Config& config, std::optional<ActivatedSockets> sockets);

  // Ends at once what is still served. Removes the sockets, unless they were
  // given.
  ~Server();

  // Waits until the datasets of the configuration are READY, or `timeout` has
  // passed (then DEADLINE_EXCEEDED, and it may be called again); the first
  // failure of a load.
  absl::Status AwaitDatasets(absl::Duration timeout);

  // Refuses new work and says goodbye to every lease.
  void BeginDrain();
  // Waits for the clients to let go, at most `timeout`. True if all did.
  bool AwaitDrained(absl::Duration timeout);

  // Ends what is still served, as the destructor does, but never takes longer
  // than `timeout` and a little: what hangs then, in the device or on the disk,
  // ends with the process, whose exit status is 0. The list of datasets is
  // saved and the sockets are removed before. Nothing may be called afterwards.
  void Stop(absl::Duration timeout);

  // For the watchdog: see server/feed/producer.h.
  void PingProducers();
  std::map<std::string, ProducerProgress> ProducersProgress() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVER_H_
