// Checks if the devices of a configuration are available yet.

#ifndef DATASETD_SERVER_DEVICES_DEVICE_PROBE_H_
#define DATASETD_SERVER_DEVICES_DEVICE_PROBE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "datasetd/v1/server.pb.h"

namespace datasetd {

// Probes from a child process (server/devices/run_in_child.h), so that a later
// probe sees new devices. Without `devices`, looks for a first GPU; "cpu" is
// always available. REQUIRES: this process has one thread.
//   UNAVAILABLE, NOT_FOUND, ...  says what is missing
//   CANCELLED                    one of `interrupts` became readable
absl::Status ProbeDevices(const v1::Config& config,
                          absl::Span<const int> interrupts = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_DEVICE_PROBE_H_
