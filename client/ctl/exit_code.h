// Exit codes of datasetctl, as documented by --help. They never change.

#ifndef DATASETD_CLIENT_CTL_EXIT_CODE_H_
#define DATASETD_CLIENT_CTL_EXIT_CODE_H_

#include "absl/status/status.h"

namespace datasetd::ctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitRefused = 1;  // by the daemon, or the work failed
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoDaemon = 3;  // none there, or it ended meanwhile

// Returns the exit code for the status of a call to the daemon.
int ExitCodeOf(const absl::Status& status);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_EXIT_CODE_H_
