#include "client/ctl/exit_code.h"

#include "client/connection/error_detail.h"
#include "gtest/gtest.h"

namespace datasetd::ctl {
namespace {

using client::ErrorDetail;
using client::WithDetail;

TEST(ExitCodeTest, ToldApartAsTheHelpSays) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("x")), 1);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("x")), 1);
  EXPECT_EQ(ExitCodeOf(client::DaemonGoneError("x")), 3);
  EXPECT_EQ(ExitCodeOf(WithDetail(absl::AbortedError("x"),
                                  ErrorDetail::kDaemonDraining)),
            3);
  EXPECT_EQ(ExitCodeOf(WithDetail(absl::FailedPreconditionError("x"),
                                  ErrorDetail::kVersionMismatch)),
            1);
}

}  // namespace
}  // namespace datasetd::ctl
