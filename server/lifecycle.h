// The daemon from its start to its end: it waits for devices, serves, reloads
// its log levels, tells the service manager, and drains.

#ifndef DATASETD_SERVER_LIFECYCLE_H_
#define DATASETD_SERVER_LIFECYCLE_H_

#include <optional>

#include "datasetd/v1/server.pb.h"
#include "server/flags.h"
#include "server/systemd/socket_activation.h"

namespace datasetd {

// The descriptors that the process waits on.
struct Events {
  int signals;
  int parent;  // pidfd, or -1
};

// Sets the log levels. REQUIRES: the configuration is valid.
void StartLogging(const v1::Config& config);

// Serves until a signal or the end of the parent; returns the exit code.
// `flags` are for SIGHUP. REQUIRES: this process has one thread, and logging is
// started.
int Serve(const Flags& flags, const v1::Config& config, const Events& events,
          std::optional<ActivatedSockets> sockets);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LIFECYCLE_H_
