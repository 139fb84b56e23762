// Runs a function in a child process, so that what it does to its process is
// gone afterwards: a CUDA driver that found no device stays so for the life of
// the process that asked.

#ifndef DATASETD_SERVER_DEVICES_RUN_IN_CHILD_H_
#define DATASETD_SERVER_DEVICES_RUN_IN_CHILD_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace datasetd {

// Blocks until the child has ended; the function's status, code and message.
// REQUIRES: this process has one thread.
//   DEADLINE_EXCEEDED  the child took longer than `timeout`, and was killed
//   INTERNAL           the child died; says of what
absl::Status RunInChild(const std::function<absl::Status()>& function,
                        absl::Duration timeout);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_RUN_IN_CHILD_H_
