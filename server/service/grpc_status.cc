#include "server/service/grpc_status.h"

#include <string>

#include "base/utf8.h"

namespace datasetd {
namespace {

// Messages are percent-encoded in a header of at most 8 KiB; a longer one would
// reach the client as another error.
constexpr size_t kMaxMessageBytes = 2000;
constexpr size_t kKeptTailBytes = 500;

#define DATASETD_SAME_CODE(absl_code, grpc_code)                 \
  static_assert(static_cast<int>(absl::StatusCode::absl_code) == \
                static_cast<int>(grpc::StatusCode::grpc_code))
DATASETD_SAME_CODE(kOk, OK);
DATASETD_SAME_CODE(kCancelled, CANCELLED);
DATASETD_SAME_CODE(kUnknown, UNKNOWN);
DATASETD_SAME_CODE(kInvalidArgument, INVALID_ARGUMENT);
DATASETD_SAME_CODE(kDeadlineExceeded, DEADLINE_EXCEEDED);
DATASETD_SAME_CODE(kNotFound, NOT_FOUND);
DATASETD_SAME_CODE(kAlreadyExists, ALREADY_EXISTS);
DATASETD_SAME_CODE(kPermissionDenied, PERMISSION_DENIED);
DATASETD_SAME_CODE(kResourceExhausted, RESOURCE_EXHAUSTED);
DATASETD_SAME_CODE(kFailedPrecondition, FAILED_PRECONDITION);
DATASETD_SAME_CODE(kAborted, ABORTED);
DATASETD_SAME_CODE(kOutOfRange, OUT_OF_RANGE);
DATASETD_SAME_CODE(kUnimplemented, UNIMPLEMENTED);
DATASETD_SAME_CODE(kInternal, INTERNAL);
DATASETD_SAME_CODE(kUnavailable, UNAVAILABLE);
DATASETD_SAME_CODE(kDataLoss, DATA_LOSS);
DATASETD_SAME_CODE(kUnauthenticated, UNAUTHENTICATED);
#undef DATASETD_SAME_CODE

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message = PrintableUtf8(status.message());
  if (message.size() > kMaxMessageBytes) {
    const std::string tail = message.substr(message.size() - kKeptTailBytes);
    message.resize(kMaxMessageBytes - kKeptTailBytes);
    message += "..." + tail;
    // The cut may have split a character.
    message = PrintableUtf8(message);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), message);
}

}  // namespace datasetd
