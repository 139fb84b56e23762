// datasetctl run -- COMMAND: runs a command with a private daemon.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_RUN_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_RUN_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/ctl/command.h"
#include "client/ctl/private_daemon.h"

namespace datasetd::ctl {

class RunCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "run"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  int RunPerNode();
  int RunIn(PrivateDaemon* daemon, int signals);

  std::vector<std::string> command_;
  std::vector<std::string> devices_, data_roots_;
  uint64_t memory_budget_mib_ = 0;
  uint32_t host_threads_ = 0;
  std::string daemon_, daemon_log_;
  double timeout_seconds_ = 60;
  bool is_per_node_ = false;
  std::string job_;
  double linger_seconds_ = 10;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_RUN_COMMAND_H_
