// Base class of the subcommands of datasetctl.

#ifndef DATASETD_CLIENT_CTL_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMAND_H_

#include <google/protobuf/message.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/connection/address.h"
#include "client/ctl/arguments.h"

namespace datasetd::ctl {

struct GlobalFlags {
  std::string address;
  bool json = false;
};

// Returns a line for standard error that names the daemon if it was found among
// those of this user's jobs, else an empty text.
std::string NoticeOf(const client::Address& address);

// Owned by main, which calls Run if the command was given. Not movable: AddTo
// binds arguments to members.
class Command {
 public:
  explicit Command(const GlobalFlags* flags) : flags_(flags) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  // Name and description of the subcommand.
  virtual const char* name() const = 0;
  virtual const char* help() const = 0;
  virtual void AddTo(Arguments* /*arguments*/) {}

  // Runs the command and returns the exit code. Writes results to standard
  // output, everything else to standard error.
  virtual int Run() = 0;

  // Prints the error, as JSON with --json, and returns its exit code.
  int Fail(const absl::Status& status) const;

 protected:
  const GlobalFlags& flags() const { return *flags_; }
  absl::StatusOr<Client> Connect() const;

  // As Fail, for an error of the command line.
  int FailUsage(const std::string& message) const;

  // Writes "datasetctl: warning: `text`" to standard error.
  void Warn(const std::string& text) const;

  // Writes `text` to standard output, with control characters escaped unless it
  // is JSON. Returns kExitRefused if that fails.
  int Print(const std::string& text) const;

 private:
  int Report(const absl::Status& status, int exit_code) const;

  const GlobalFlags* flags_;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMAND_H_
