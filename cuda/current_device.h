// The CUDA device of the calling thread.
//
// Every call of the device layer sets it, and none restores it: setting a
// device gives it a context, some hundred MiB, also where only the thread's
// default, device 0, would be restored.

#ifndef DATASETD_CUDA_CURRENT_DEVICE_H_
#define DATASETD_CUDA_CURRENT_DEVICE_H_

#include "absl/status/status.h"

namespace datasetd {

absl::Status SetCurrentDevice(int ordinal);

// For destructors: logs an error, as LogCudaError does.
void SetCurrentDeviceOrLog(int ordinal);

}  // namespace datasetd

#endif  // DATASETD_CUDA_CURRENT_DEVICE_H_
