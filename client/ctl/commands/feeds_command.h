// datasetctl feeds: lists feeds with their dataset and rate, and whether the
// job or the daemon waits.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_FEEDS_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_FEEDS_COMMAND_H_

#include "client/ctl/command.h"

namespace datasetd::ctl {

class FeedsCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "feeds"; }
  const char* help() const override;
  int Run() override;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_FEEDS_COMMAND_H_
