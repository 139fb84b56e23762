// Marks an error after which a device is of no more use: every later call
// returns it, and only a new process can use the device again. Any other error
// is that of the one load or feed that met it.
//
// The mark stays with a status that is copied, not with its code and message.

#ifndef DATASETD_CUDA_BACKEND_DEVICE_FAILURE_H_
#define DATASETD_CUDA_BACKEND_DEVICE_FAILURE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace datasetd {

// `status`, marked, with the name of the device, "cuda:0"; empty if that is not
// known. Calls the handler. REQUIRES: an error.
absl::Status DeviceFailure(absl::Status status, absl::string_view device = "");

bool IsDeviceFailure(const absl::Status& status);
// The device of a failure; empty if it is not known, or the status is none.
std::string FailedDevice(const absl::Status& status);

// `handler` is called by every DeviceFailure from now on, in the thread that
// met the error, with whatever locks it holds and whatever it makes of the
// status; it may end the process. None at first. On return the handler before
// is not running and is not called again.
void SetDeviceFailureHandler(
    std::function<void(const absl::Status& status)> handler);

}  // namespace datasetd

#endif  // DATASETD_CUDA_BACKEND_DEVICE_FAILURE_H_
