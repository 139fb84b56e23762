// Whether the devices of a configuration are there yet.

#ifndef DATASETD_SERVER_DEVICES_DEVICE_PROBE_H_
#define DATASETD_SERVER_DEVICES_DEVICE_PROBE_H_

#include "absl/status/status.h"
#include "datasetd/v1/server.pb.h"

namespace datasetd {

// Looks from a child process (server/devices/run_in_child.h): a later look sees
// what has come meanwhile. Without `devices` a first GPU is looked for; "cpu"
// is always there. REQUIRES: this process has one thread.
//   UNAVAILABLE, NOT_FOUND, ...  says what is missing
absl::Status ProbeDevices(const v1::Config& config);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_DEVICE_PROBE_H_
