// datasetctl unload NAME: unloads a dataset.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_UNLOAD_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_UNLOAD_COMMAND_H_

#include <string>

#include "client/ctl/command.h"

namespace datasetd::ctl {

class UnloadCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "unload"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  std::string name_;
  bool force_ = false;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_UNLOAD_COMMAND_H_
