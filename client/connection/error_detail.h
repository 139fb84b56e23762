// Details of errors beyond the status code: why a session or a feed ended.
//
// The detail is a payload of the status. Its numbers are those of
// datasetd_detail in datasetd.h and never change.

#ifndef DATASETD_CLIENT_CONNECTION_ERROR_DETAIL_H_
#define DATASETD_CLIENT_CONNECTION_ERROR_DETAIL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/attach_protocol.h"

namespace datasetd::client {

enum class ErrorDetail : int32_t {
  kNone = 0,
  kDaemonGone = 1,       // UNAVAILABLE: no daemon at the other end
  kDaemonDraining = 2,   // ABORTED: it stops on purpose
  kDatasetUnloaded = 3,  // FAILED_PRECONDITION: unloaded by force
  kFeedEvicted = 4,      // ABORTED: the feed broke the protocol or a limit
  kDeviceFailed = 5,     // INTERNAL: the daemon's device failed
  kAllSlotsHeld = 6,     // FAILED_PRECONDITION: the caller keeps every slot
  kForked = 7,           // FAILED_PRECONDITION: made before fork()
  kClosed = 8,           // FAILED_PRECONDITION: closed by the caller
  kVersionMismatch = 9,  // FAILED_PRECONDITION: another protocol version
  kNoBatches = 10,       // FAILED_PRECONDITION: epochs hold no batch
  kContextFailed = 11,   // INTERNAL: this process's CUDA context failed
  kFeedFailed = 12,      // INTERNAL: its work was refused, or samples are lost
};

absl::Status WithDetail(absl::Status status, ErrorDetail detail);

// Returns kNone if the status has no detail.
ErrorDetail DetailOf(const absl::Status& status);

// `who` is the daemon's address.
absl::Status DaemonGoneError(const std::string& who);
absl::Status ForkedError(const char* what);

// Returns the error for the daemon's reason to close the connection. An unknown
// code becomes kDaemonGone.
absl::Status GoodbyeError(const attach::Goodbye& goodbye,
                          const std::string& who);

// Returns the text of `reason`, which need not be zero-terminated, escaped.
std::string ReasonText(const char (&reason)[attach::kTextBytes]);

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_ERROR_DETAIL_H_
