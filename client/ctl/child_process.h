// Starting programs, and how they ended.

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
    // The program is arguments[0], looked for on PATH if it has no slash.
    std::vector<std::string> arguments;
    // Set beside this process's.
    std::map<std::string, std::string> environment;
    // Standard output and error go there, and input is /dev/null; empty leaves
    // all three.
    std::string output_path;
    // Standard output goes where standard error does.
    bool output_to_stderr = false;
    bool new_session = false;
  };

  // Starts it with no signal blocked; it is the caller's to wait for. REQUIRES:
  // arguments is not empty.
  //   NOT_FOUND, PERMISSION_DENIED  the program, or output_path
  static absl::StatusOr<pid_t> Start(const Options& options);
};

// "ended with code 1", "was killed by signal 9 (Killed)".
std::string DescribeWaitStatus(int wait_status);

// As shells have it: the code, or 128 and the signal.
int ExitCodeOfWaitStatus(int wait_status);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_CHILD_PROCESS_H_
