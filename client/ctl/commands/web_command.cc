#include "client/ctl/commands/web_command.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/python_package.h"

namespace datasetd::ctl {

const char* WebCommand::help() const {
  return "Serve a page that shows jobs, samples, memory and health to this "
         "user alone, until Ctrl-C. It runs `python3 -m datasetd web`";
}

void WebCommand::AddTo(Arguments* arguments) {
  arguments
      ->Add("--host", &host_,
            "127.0.0.1 or ::1; from elsewhere: ssh -L "
            "PORT:127.0.0.1:PORT")
      .OneOf({"127.0.0.1", "::1"})
      .ShowDefault();
  arguments->Add("--port", &port_, "0: one that is free").ShowDefault();
  arguments->Add("--unix_socket", &unix_socket_,
                 "Serve at a Unix socket instead; ssh -L PORT:PATH "
                 "forwards it");
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
