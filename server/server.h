// The daemon: devices, datasets, feeds, and the socket that clients use.

#ifndef DATASETD_SERVER_SERVER_H_
#define DATASETD_SERVER_SERVER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file_descriptor.h"
#include "datasetd/v1/server.pb.h"
#include "server/feed/producer.h"
#include "server/systemd/socket_activation.h"

namespace datasetd {

class Server {
 public:
  // Opens the devices and the socket, or takes the given one, and starts
  // serving and loading the configured datasets. REQUIRES: `config` has its
  // defaults (server/config/config.h).
  //   FAILED_PRECONDITION  another daemon serves this socket
  //   UNAVAILABLE          a configured GPU or the metrics port is not
  //                        available
  // Also errors of system calls on the socket.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const v1::Config& config, std::optional<ActivatedSocket> socket);

  // Ends all service at once. Removes the socket unless it was given.
  ~Server();

  // Blocks until the configured datasets are READY, or unloaded; returns the
  // failure of a load. DEADLINE_EXCEEDED, which says how far they are, after
  // `timeout`; may then be called again.
  absl::Status AwaitDatasets(absl::Duration timeout);

  // Refuses new work and sends a goodbye to every lease.
  void BeginDrain();
  // Blocks until all clients have closed their leases and what they pushed is
  // in the cache; false after `timeout`.
  bool AwaitDrained(absl::Duration timeout);

  // Ends all service as the destructor does, but takes little longer than
  // `timeout`: if the device or the disk hangs, exits the process with
  // `exit_code`. The list of datasets is saved and the sockets are removed
  // before. No other function may be called afterwards.
  void Stop(absl::Duration timeout, int exit_code);

  // Returns a connection to gRPC that belongs to no session. For one thread.
  FileDescriptor ConnectToGrpc();

  // For exit_when_idle: true if a client is connected, or was since the last
  // call. For one thread.
  bool WasUsed();
  // If no client is connected, refuses all that come from now on, as a draining
  // daemon does, and returns true.
  bool CloseIfUnused();
  // Removes the socket's file unless it was given. Who is connected stays.
  void RemoveSocket();

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
