// datasetctl explain: shows what the ops of a pipeline draw for given samples.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_EXPLAIN_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_EXPLAIN_COMMAND_H_

#include <cstdint>
#include <string>

#include "client/ctl/command.h"

namespace datasetd::ctl {

class ExplainCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "explain"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  std::string dataset_;
  std::string field_ = "image";
  std::string transforms_;
  uint64_t seed_ = 0;
  uint64_t epoch_ = 0;
  uint64_t first_sample_ = 0;
  uint32_t num_samples_ = 1;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_EXPLAIN_COMMAND_H_
