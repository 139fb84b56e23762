// datasetctl bench -- COMMAND: measures the share of a training step that is
// spent on data.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_BENCH_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_BENCH_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/ctl/command.h"

namespace datasetd::ctl {

class BenchCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "bench"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  std::vector<std::string> command_;
  uint32_t num_steps_ = 50;
  uint32_t num_rounds_ = 5;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_BENCH_COMMAND_H_
