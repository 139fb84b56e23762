// datasetctl datasets [NAME]: lists the resident datasets, or describes one.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_DATASETS_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_DATASETS_COMMAND_H_

#include <string>

#include "client/ctl/command.h"

namespace datasetd::ctl {

class DatasetsCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "datasets"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  std::string name_;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_DATASETS_COMMAND_H_
