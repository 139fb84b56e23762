#include "cuda/backends.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "cuda/device/cuda_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(BackendsTest, MakesTheHost) {
  const auto backend = CreateBackend("cpu", {.host = {.num_threads = 5}});
  ASSERT_THAT(backend, IsOk());
  EXPECT_EQ((*backend)->info().name, "cpu");
  EXPECT_EQ((*backend)->max_launches_in_flight(), 10);
}

TEST(BackendsTest, UnknownDeviceListsThoseThereAre) {
  for (const std::string name :
       {"", "gpu", "CPU", "cpu:0", "cuda", "cuda:", "cuda:x", "cuda:-1",
        "cuda:+1", "cuda:01", "cuda:0 ", " cuda:0", "cuda:99999999999"}) {
    EXPECT_THAT(CreateBackend(name, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("\"" + name + "\""),
                               HasSubstr("there is: cpu"))));
  }
}

TEST(BackendsTest, CudaDevicesAreThoseThatTheDriverCounts) {
  const absl::StatusOr<int> count = CountCudaDevices();
  if (count.ok()) {
    EXPECT_EQ(ListDevices().size(), 1u + *count);
    EXPECT_THAT(CreateBackend("cuda:" + std::to_string(*count), {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("there is: cpu, cuda:0")));
  } else {
    const auto code =
        absl::StartsWith(count.status().message(), "built without CUDA")
            ? absl::StatusCode::kUnimplemented
            : absl::StatusCode::kUnavailable;
    EXPECT_THAT(count, StatusIs(code, HasSubstr("device cpu")));
    EXPECT_THAT(ListDevices(), ::testing::ElementsAre("cpu"));
    EXPECT_THAT(
        CreateBackend("cuda:0", {}),
        StatusIs(absl::StatusCode::kUnavailable,
                 AllOf(HasSubstr("cuda:0"),
                       HasSubstr(std::string(count.status().message())))));
    EXPECT_THAT(CreateCudaBackend({}), StatusIs(code));
  }
}

}  // namespace
}  // namespace datasetd
