// Reports the daemon's state to the service manager: one datagram to
// $NOTIFY_SOCKET, as in sd_notify(3).

#ifndef DATASETD_SERVER_SYSTEMD_SD_NOTIFY_H_
#define DATASETD_SERVER_SYSTEMD_SD_NOTIFY_H_

#include <string>

namespace datasetd {

// `state` consists of lines such as "READY=1". Does nothing if $NOTIFY_SOCKET
// is unset; ignores errors. Does not block: returns false if the manager has
// not read what was sent before, and nothing was sent. Thread-safe.
bool SdNotify(const std::string& state);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SD_NOTIFY_H_
