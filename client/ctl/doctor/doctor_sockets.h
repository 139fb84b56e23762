// The part of the doctor that looks at the daemon's sockets: whether they are
// there, whose they are, and whether this process may use them.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SOCKETS_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SOCKETS_H_

#include "client/connection/address.h"
#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// Adds a finding for each socket, and one for the group. True if both sockets
// are there and this process may connect to them.
bool CheckSockets(const client::Address& address, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_SOCKETS_H_
