// What a status code alone does not tell: which of the ends that a session or
// a feed can come to this one was.
//
// The detail travels inside the status, as a payload. Its numbers are those of
// datasetd_detail in datasetd.h: they never change.

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
};

absl::Status WithDetail(absl::Status status, ErrorDetail detail);

// kNone where nothing was attached.
ErrorDetail DetailOf(const absl::Status& status);

// `who` is the daemon's address.
absl::Status DaemonGoneError(const std::string& who);
absl::Status ForkedError(const char* what);

// Why the daemon closed the connection. An unknown code counts as gone.
absl::Status GoodbyeError(const attach::Goodbye& goodbye,
                          const std::string& who);

// The reason of a message, which need not be terminated.
std::string ReasonText(const char (&reason)[attach::kTextBytes]);

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_ERROR_DETAIL_H_
