#include "client/ctl/commands/web_command.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/python_package.h"

namespace datasetd::ctl {

CLI::App* WebCommand::AddTo(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "web",
      "Serve a page that shows jobs, samples, memory and health to this user "
      "alone, until Ctrl-C. It runs `python3 -m datasetd web`");
  command
      ->add_option("--host", host_,
                   "127.0.0.1 or ::1; from elsewhere: ssh -L "
                   "PORT:127.0.0.1:PORT")
      ->check(CLI::IsMember({"127.0.0.1", "::1"}))
      ->capture_default_str();
  command->add_option("--port", port_, "0: one that is free")
      ->capture_default_str();
  command->add_option("--unix_socket", unix_socket_,
                      "Serve at a Unix socket instead; ssh -L PORT:PATH "
                      "forwards it");
  return command;
}

int WebCommand::Run() {
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

}  // namespace datasetd::ctl
