#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/python_package.h"

namespace datasetd::ctl {
namespace {

class WebCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "web"; }
  const char* help() const override {
    return "Serve a web page with jobs, samples, memory and health, "
           "to this user only, until Ctrl-C. Runs `python3 -m "
           "datasetd web`";
  }

  void AddTo(Arguments* arguments) override {
    arguments
        ->Add("--host", &host_,
              "127.0.0.1 or ::1; from another machine use ssh -L "
              "PORT:127.0.0.1:PORT")
        .OneOf({"127.0.0.1", "::1"})
        .ShowDefault();
    arguments->Add("--port", &port_, "TCP port; 0: any free port")
        .ShowDefault();
    arguments->Add("--unix_socket", &unix_socket_,
                   "Listen on a Unix socket instead; ssh -L PORT:PATH "
                   "forwards it");
  }

  // Returns only if Python or the package is missing.
  int Run() override {
    std::vector<std::string> arguments = {"web"};
    if (!flags().address.empty()) {
      arguments.push_back("--address=" + flags().address);
    }
    if (flags().json) arguments.push_back("--json");
    arguments.push_back("--host=" + host_);
    arguments.push_back(absl::StrCat("--port=", port_));
    if (!unix_socket_.empty()) {
      arguments.push_back("--unix_socket=" + unix_socket_);
    }
    return Fail(ExecPythonPackage("serves the page", arguments));
  }

 private:
  std::string host_ = "127.0.0.1";
  uint16_t port_ = 0;
  std::string unix_socket_;
};

}  // namespace

std::unique_ptr<Command> MakeWebCommand(const GlobalFlags* flags) {
  return std::make_unique<WebCommand>(flags);
}

}  // namespace datasetd::ctl
