// datasetctl doctor: reports problems of this machine, this user and the
// daemon, one per line, with the fix. Exit code 1 if something cannot work.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_COMMAND_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_COMMAND_H_

#include <memory>

#include "client/ctl/command.h"

namespace datasetd::ctl {

std::unique_ptr<Command> MakeDoctorCommand(const GlobalFlags* flags);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_COMMAND_H_
