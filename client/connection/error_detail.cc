#include "client/connection/error_detail.h"

#include <string.h>

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace datasetd::client {
namespace {

constexpr char kPayloadUrl[] = "datasetd/error-detail";

}  // namespace

absl::Status WithDetail(absl::Status status, ErrorDetail detail) {
  status.SetPayload(kPayloadUrl,
                    absl::Cord(absl::StrCat(static_cast<int32_t>(detail))));
  return status;
}

ErrorDetail DetailOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  int32_t detail = 0;
  if (!payload.has_value() ||
      !absl::SimpleAtoi(std::string(*payload), &detail)) {
    return ErrorDetail::kNone;
  }
  return static_cast<ErrorDetail>(detail);
}

absl::Status DaemonGoneError(const std::string& who) {
  return WithDetail(
      absl::UnavailableError(absl::StrCat(
          "the daemon at ", who,
          " is gone: its connection closed without a word. Connect again when "
          "it runs; its log says what happened")),
      ErrorDetail::kDaemonGone);
}

absl::Status ForkedError(const char* what) {
  return WithDetail(
      absl::FailedPreconditionError(absl::StrCat(
          what,
          " was made before fork() and belongs to the parent process: connect "
          "and open a feed in the process that uses them")),
      ErrorDetail::kForked);
}

std::string ReasonText(const char (&reason)[attach::kTextBytes]) {
  return PrintableUtf8(
      absl::string_view(reason, strnlen(reason, attach::kTextBytes)));
}

absl::Status GoodbyeError(const attach::Goodbye& goodbye,
                          const std::string& who) {
  const std::string reason = ReasonText(goodbye.reason);
  switch (goodbye.code) {
    case attach::GoodbyeCode::kDraining:
      return WithDetail(absl::AbortedError(absl::StrCat("the daemon at ", who,
                                                        " stops: ", reason)),
                        ErrorDetail::kDaemonDraining);
    case attach::GoodbyeCode::kUnloaded:
      return WithDetail(
          absl::FailedPreconditionError(absl::StrCat(
              "the dataset was unloaded while this feed was open: ", reason)),
          ErrorDetail::kDatasetUnloaded);
    case attach::GoodbyeCode::kEvicted:
      return WithDetail(
          absl::AbortedError(absl::StrCat("the daemon at ", who,
                                          " ended this feed: ", reason)),
          ErrorDetail::kFeedEvicted);
    case attach::GoodbyeCode::kFailed:
      return WithDetail(
          absl::InternalError(absl::StrCat("the device of the daemon at ", who,
                                           " failed: ", reason)),
          ErrorDetail::kDeviceFailed);
    case attach::GoodbyeCode::kFeedFailed:
      return WithDetail(
          absl::InternalError(absl::StrCat("the daemon at ", who,
                                           " stopped this feed: ", reason)),
          ErrorDetail::kFeedFailed);
    case attach::GoodbyeCode::kSessionEnded:
      return WithDetail(
          absl::UnavailableError(absl::StrCat("the daemon at ", who,
                                              " ended this session: ", reason)),
          ErrorDetail::kDaemonGone);
  }
  return DaemonGoneError(who);
}

}  // namespace datasetd::client
