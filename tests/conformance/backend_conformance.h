// Requirements of all Backends, as one parameterised suite. A test of a backend
// instantiates it, and has a main of its own for the second process:
//
//   INSTANTIATE_TEST_SUITE_P(Host, BackendConformanceTest,
//                            ::testing::Values(BackendUnderTest{...}),
//                            NameOfBackend);
//   int main(int argc, char** argv) {
//     return datasetd::testing::ConformanceMain(argc, argv, ImportMemfd);
//   }

#ifndef DATASETD_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_H_
#define DATASETD_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "gtest/gtest.h"
#include "tests/conformance/export_peer.h"

namespace datasetd::testing {

struct BackendUnderTest {
  std::string name;  // letters and digits
  // UNAVAILABLE skips the test; with DATASETD_REQUIRE_GPU=1 in the environment
  // it fails it.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>()> create;
  // Called over and over while a test waits for work; may be empty.
  std::function<void(Backend&)> advance;
};

inline std::string NameOfBackend(
    const ::testing::TestParamInfo<BackendUnderTest>& info) {
  return info.param.name;
}

class BackendConformanceTest
    : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  void SetUp() override;

  // Until the event is done; a failure of the test if that takes a minute.
  void WaitUntilDone(Event& event);
  // Until `condition`, as above.
  void WaitFor(const std::function<bool()>& condition);

  std::unique_ptr<Backend> backend_;
};

int ConformanceMain(int argc, char** argv, const Importer& importer);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CONFORMANCE_BACKEND_CONFORMANCE_H_
