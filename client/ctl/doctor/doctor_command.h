// datasetctl doctor: reports problems of this machine, this user and the
// daemon, one per line, with the fix. Exit code 1 if something cannot work.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_COMMAND_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_COMMAND_H_

#include <sys/types.h>

#include <string>

#include "client/ctl/command.h"
#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

class DoctorCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "doctor"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  // Returns the daemon's process; 0 if it does not answer.
  pid_t CheckDaemon(Findings* findings);

  bool skip_sharing_ = false;
  std::string cache_directory_;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_COMMAND_H_
