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
    // Gets standard output and error; input is then /dev/null. -1: all three
    // are inherited.
    int output_fd = -1;
    // Sends standard output to standard error.
    bool output_to_stderr = false;
    // Kills the program when the thread that started it ends.
    bool is_killed_with_parent = false;
  };

  // Starts the program with no signal blocked. The caller must wait for it.
  // REQUIRES: arguments is not empty.
  //   NOT_FOUND, PERMISSION_DENIED  concerning the program
  static absl::StatusOr<pid_t> Start(const Options& options);
};

// "ended with code 1", "was killed by signal 9 (Killed)".
std::string DescribeWaitStatus(int wait_status);

// Returns the exit code as shells do: the code, or 128 plus the signal.
int ExitCodeOfWaitStatus(int wait_status);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_CHILD_PROCESS_H_
