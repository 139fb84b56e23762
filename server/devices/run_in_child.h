// Runs a function in a child process, so that its effects on the process are
// discarded: a CUDA driver that found no device keeps failing for the life of
// its process.

#ifndef DATASETD_SERVER_DEVICES_RUN_IN_CHILD_H_
#define DATASETD_SERVER_DEVICES_RUN_IN_CHILD_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace datasetd {

// Blocks until the child ends; returns the function's status, code and message.
// REQUIRES: this process has one thread.
//   DEADLINE_EXCEEDED  the child took longer than `timeout`, and was killed
//   CANCELLED          one of `interrupts` became readable: likewise
//   INTERNAL           the child died; says why
absl::Status RunInChild(const std::function<absl::Status()>& function,
                        absl::Duration timeout,
                        absl::Span<const int> interrupts = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_RUN_IN_CHILD_H_
