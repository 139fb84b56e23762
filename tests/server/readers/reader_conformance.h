// Requirements of all readers, run on cases that make_reader_data.py wrote.
//
// A format's test instantiates it:
//   INSTANTIATE_TEST_SUITE_P(Npy, ReaderConformanceTest,
//                            ::testing::Values("npy_images", ...));

#ifndef DATASETD_TESTS_SERVER_READERS_READER_CONFORMANCE_H_
#define DATASETD_TESTS_SERVER_READERS_READER_CONFORMANCE_H_

#include <string>

#include "gtest/gtest.h"
#include "tests/server/readers/generated_data.h"

namespace datasetd::testing {

// The parameter names the case.
class ReaderConformanceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    generated_ = LoadGeneratedCase(GetParam());
    memory_ = CopyToMemory(generated_);
  }

  GeneratedCase generated_;
  MemoryFileSystem memory_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_SERVER_READERS_READER_CONFORMANCE_H_
