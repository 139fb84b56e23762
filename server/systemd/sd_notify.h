// Tells the service manager how the daemon is doing: one datagram to
// $NOTIFY_SOCKET, as sd_notify(3) describes.

#ifndef DATASETD_SERVER_SYSTEMD_SD_NOTIFY_H_
#define DATASETD_SERVER_SYSTEMD_SD_NOTIFY_H_

#include <string>

namespace datasetd {

// `state` is lines such as "READY=1". Does nothing where $NOTIFY_SOCKET is not
// set; what the manager does not take is lost. Thread-safe.
void SdNotify(const std::string& state);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SD_NOTIFY_H_
