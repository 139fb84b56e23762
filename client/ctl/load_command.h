// datasetctl load NAME: makes a dataset resident, and shows how far it is.

#ifndef DATASETD_CLIENT_CTL_LOAD_COMMAND_H_
#define DATASETD_CLIENT_CTL_LOAD_COMMAND_H_

#include <string>
#include <vector>

#include "client/ctl/command.h"

namespace datasetd::ctl {

class LoadCommand final : public Command {
 public:
  using Command::Command;
  CLI::App* AddTo(CLI::App& app) override;
  int Run() override;

 private:
  std::string name_, format_, path_, split_, device_;
  std::vector<std::string> options_;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_LOAD_COMMAND_H_
