// The daemon from its start to its end: it waits for devices, serves, reloads
// its log levels, tells the service manager, and drains.

#ifndef DATASETD_SERVER_LIFECYCLE_H_
#define DATASETD_SERVER_LIFECYCLE_H_

#include <optional>

#include "datasetd/v1/server.pb.h"
#include "server/flags.h"
#include "server/private_daemon.h"
#include "server/systemd/socket_activation.h"

namespace datasetd {

// The descriptors that the process waits on.
struct Events {
  int signals;
  int parent;  // pidfd, or -1
  // PrivateDaemon::starter, or -1.
  int starter = -1;
};

// Sets the log levels. REQUIRES: the configuration is valid.
void StartLogging(const v1::Config& config);

// Serves until a signal, the end of the parent, or an idle time; returns the
// exit code. SIGUSR1 ends the daemon only if it has no client. `flags` are for
// SIGHUP; `private_daemon` may be null. REQUIRES: this process has one thread,
// and logging is started.
int Serve(const Flags& flags, const v1::Config& config, Events events,
          std::optional<ActivatedSocket> socket, PrivateDaemon* private_daemon);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LIFECYCLE_H_
