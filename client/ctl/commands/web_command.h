// datasetctl web: becomes `python3 -m datasetd web`, which serves a page.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_WEB_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_WEB_COMMAND_H_

#include <cstdint>
#include <string>

#include "client/ctl/command.h"

namespace datasetd::ctl {

class WebCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "web"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  // Returns only if Python or the package is missing.
  int Run() override;

 private:
  std::string host_ = "127.0.0.1";
  uint16_t port_ = 0;
  std::string unix_socket_;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_WEB_COMMAND_H_
