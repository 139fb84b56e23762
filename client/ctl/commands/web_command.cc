#include "client/ctl/commands/web_command.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/child_process.h"

namespace datasetd::ctl {
namespace {

constexpr char kPython[] = "python3";
constexpr char kFindPackage[] =
    "import importlib.util, sys; "
    "sys.exit(importlib.util.find_spec('datasetd') is None)";

// Returns true if Python finds the package; an error if there is no Python.
absl::StatusOr<bool> HasPackage() {
  ChildProcess::Options child;
  child.arguments = {kPython, "-c", kFindPackage};
  child.output_to_stderr = true;
  const auto pid = ChildProcess::Start(child);
  if (!pid.ok()) return pid.status();
  int status = 0;
  while (waitpid(*pid, &status, 0) != *pid) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "waitpid");
  }
  return ExitCodeOfWaitStatus(status) == 0;
}

}  // namespace

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
  const auto has_package = HasPackage();
  if (!has_package.ok()) return Fail(has_package.status());
  if (!*has_package) {
    return Fail(absl::NotFoundError(
        "python3 finds no package `datasetd`, which serves the page: install "
        "the wheel, or the Debian package datasetd; docs/packages.md tells "
        "how"));
  }
  std::vector<std::string> arguments = {kPython, "-m", "datasetd", "web"};
  if (!flags().address.empty()) {
    arguments.push_back("--address=" + flags().address);
  }
  if (flags().json) arguments.push_back("--json");
  arguments.push_back("--host=" + host_);
  arguments.push_back(absl::StrCat("--port=", port_));
  if (!unix_socket_.empty()) {
    arguments.push_back("--unix_socket=" + unix_socket_);
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(kPython, pointers.data());
  return Fail(absl::ErrnoToStatus(errno, "execvp of python3"));
}

}  // namespace datasetd::ctl
