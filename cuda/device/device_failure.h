// Marks an error after which a device is of no more use: every later call
// returns it, and only a new process can use the device again. Any other error
// is that of the one load or feed that met it.
//
// The mark stays with a status that is copied, not with its code and message.

#ifndef DATASETD_CUDA_DEVICE_DEVICE_FAILURE_H_
#define DATASETD_CUDA_DEVICE_DEVICE_FAILURE_H_

#include "absl/status/status.h"

namespace datasetd {

// `status`, marked. Calls the handler. REQUIRES: an error.
absl::Status DeviceFailure(absl::Status status);

bool IsDeviceFailure(const absl::Status& status);

// `handler` is called by every DeviceFailure from now on, in the thread that
// met the error, whatever the caller makes of the status; it may end the
// process. None at first.
void SetDeviceFailureHandler(void (*handler)(const absl::Status& status));

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_DEVICE_FAILURE_H_
