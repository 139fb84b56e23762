// Doctor checks of the daemon's sockets: existence, ownership, and whether this
// process may connect.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SOCKETS_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SOCKETS_H_

#include "client/connection/address.h"
#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// Adds a finding per socket and one for the group. Returns true if both sockets
// exist and this process may connect to them.
bool CheckSockets(const client::Address& address, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SOCKETS_H_
