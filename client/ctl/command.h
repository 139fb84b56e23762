// One subcommand of datasetctl, and what all of them share.

#ifndef DATASETD_CLIENT_CTL_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMAND_H_

#include <google/protobuf/message.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace datasetd::ctl {

struct GlobalFlags {
  std::string address;
  bool json = false;
};

// Owned by main, which calls Run when the command was given. AddTo binds
// options to members, so a command stays where it is.
class Command {
 public:
  explicit Command(const GlobalFlags* flags) : flags_(flags) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  // Adds the subcommand with its options.
  virtual CLI::App* AddTo(CLI::App& app) = 0;

  // Returns the exit code. Results are on standard output, the rest on
  // standard error.
  virtual int Run() = 0;

 protected:
  const GlobalFlags& flags() const { return *flags_; }
  absl::StatusOr<Client> Connect() const;

  // Prints the error, as JSON if asked so, and returns its exit code.
  int Fail(const absl::Status& status) const;
  // The same for what the command line got wrong.
  int FailUsage(const std::string& message) const;

  // Standard output, text for people without control characters; kExitRefused
  // if it cannot be written.
  int Print(const std::string& text) const;

 private:
  int Report(const absl::Status& status, int exit_code) const;

  const GlobalFlags* flags_;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMAND_H_
