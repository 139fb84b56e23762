// Starts child processes and describes how they ended.

#ifndef DATASETD_CLIENT_CTL_CHILD_PROCESS_H_
#define DATASETD_CLIENT_CTL_CHILD_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace datasetd::ctl {

class ChildProcess {
 public:
  struct Options {
    // The program is arguments[0], searched on PATH if it has no slash.
    std::vector<std::string> arguments;
    // Added to this process's environment.
    std::map<std::string, std::string> environment;
    // File for standard output and error; input is then /dev/null. Empty: all
    // three are inherited.
    std::string output_path;
    // Sends standard output to standard error.
    bool output_to_stderr = false;
    bool new_session = false;
  };

  // Starts the program with no signal blocked. The caller must wait for it.
  // REQUIRES: arguments is not empty.
  //   NOT_FOUND, PERMISSION_DENIED  concerning the program or output_path
  static absl::StatusOr<pid_t> Start(const Options& options);
};

// "ended with code 1", "was killed by signal 9 (Killed)".
std::string DescribeWaitStatus(int wait_status);

// Returns the exit code as shells do: the code, or 128 plus the signal.
int ExitCodeOfWaitStatus(int wait_status);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_CHILD_PROCESS_H_
