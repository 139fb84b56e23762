#ifndef DATASETD_SERVER_FILES_ERRNO_STATUS_H_
#define DATASETD_SERVER_FILES_ERRNO_STATUS_H_

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace datasetd {

// Returns the error in errno as "NAME: WHAT: reason".
inline absl::Status ErrnoStatus(absl::string_view name,
                                absl::string_view what) {
  const int error = errno;
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(name, ": ", what, ": ", strerror(error)));
}

// The code for an errno of opening or reading a file that is there. DATA_LOSS
// only where the file system finds the file damaged, by checksums of its own;
// RESOURCE_EXHAUSTED for a lack of memory or descriptors; else UNAVAILABLE: the
// disk or a file server failed, and the file may be whole.
inline absl::StatusCode ReadErrorCode(int error) {
  if (error == EBADMSG || error == EUCLEAN) return absl::StatusCode::kDataLoss;
  const absl::StatusCode code = absl::ErrnoToStatusCode(error);
  return code == absl::StatusCode::kResourceExhausted
             ? code
             : absl::StatusCode::kUnavailable;
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_ERRNO_STATUS_H_
