#include "cuda/host/host_backend.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/memfd_importer.h"

namespace datasetd::testing {
namespace {

BackendUnderTest Host(const std::string& name, int num_threads) {
  return {.name = name, .create = [num_threads] {
            return CreateHostBackend({.num_threads = num_threads});
          }};
}

INSTANTIATE_TEST_SUITE_P(Host, BackendConformanceTest,
                         ::testing::Values(Host("OneThread", 1),
                                           Host("FourThreads", 4)),
                         NameOfBackend);

TEST(HostBackendTest, IsTheDeviceCpu) {
  const auto backend = CreateHostBackend({.num_threads = 3});
  EXPECT_EQ(backend->info().name, "cpu");
  EXPECT_TRUE(backend->info().is_host);
  EXPECT_FALSE(backend->needs_polling());
  // Up to 4 MiB, or 8.
  EXPECT_EQ(backend->max_batches_per_launch(1), 8);
  EXPECT_EQ(backend->max_batches_per_launch(1 << 20), 4);
  EXPECT_EQ(backend->max_batches_per_launch((2 << 20) + 1), 1);
  EXPECT_EQ(backend->max_batches_per_launch(int64_t{1} << 40), 1);
  EXPECT_EQ(backend->max_launches_in_flight(), 6);
  EXPECT_THAT(backend->export_kinds(),
              ::testing::ElementsAre(ExportKind::kMemfd));
}

TEST(HostBackendTest, TakesTheCoresThatThereAre) {
  EXPECT_GE(CreateHostBackend({})->max_launches_in_flight(), 2);
}

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  return datasetd::testing::ConformanceMain(argc, argv,
                                            datasetd::testing::ImportMemfd);
}
