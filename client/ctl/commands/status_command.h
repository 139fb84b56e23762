// datasetctl status: shows the daemon, its devices and their memory.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_STATUS_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_STATUS_COMMAND_H_

#include "client/ctl/command.h"

namespace datasetd::ctl {

class StatusCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "status"; }
  const char* help() const override;
  int Run() override;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_STATUS_COMMAND_H_
