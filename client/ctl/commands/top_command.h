// datasetctl top: live view of feeds, their rates, and who waits.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_TOP_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_TOP_COMMAND_H_

#include "client/ctl/command.h"
#include "client/ctl/commands/top_view.h"

namespace datasetd::ctl {

class TopCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "top"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  static absl::StatusOr<TopSample> Look(Client& client);

  double interval_seconds_ = 1;
  uint64_t count_ = 0;  // 0: until interrupted
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_TOP_COMMAND_H_
