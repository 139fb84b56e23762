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

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_ERRNO_STATUS_H_
