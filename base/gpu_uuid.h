// The UUID of a GPU in NVIDIA's text form, "GPU-" and 32 hexadecimal digits
// with dashes, as `nvidia-smi -L` prints it. That of an instance of a divided
// GPU (MIG) begins with "MIG-".

#ifndef DATASETD_BASE_GPU_UUID_H_
#define DATASETD_BASE_GPU_UUID_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace datasetd {

inline constexpr size_t kGpuUuidBytes = 16;

// In the path of a socket: the UUID of the daemon's first GPU, and of the
// client's own.
inline constexpr char kGpuPlaceholder[] = "{gpu}";

// "GPU-01234567-89ab-cdef-0123-456789abcdef". Empty if `uuid` is not 16 bytes.
std::string GpuUuidText(absl::string_view uuid, bool is_mig);

// Whether a device name is meant as a UUID: it begins with "GPU-" or "MIG-".
bool IsGpuUuidName(absl::string_view name);

// Whether `name` is the UUID `text` or the beginning of it, with at least one
// digit. Capital and small digits are the same, and so are "GPU-" and "MIG-".
bool GpuUuidHasPrefix(absl::string_view text, absl::string_view name);

}  // namespace datasetd

#endif  // DATASETD_BASE_GPU_UUID_H_
