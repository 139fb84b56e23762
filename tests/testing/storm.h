// Tests of random events, a number of seeds or for some time.
//
// $DATASETD_STORM_SEED is the first seed, of which a failure names its own;
// $DATASETD_STORM_SECONDS how long the test goes on at least.

#ifndef DATASETD_TESTS_TESTING_STORM_H_
#define DATASETD_TESTS_TESTING_STORM_H_

#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/require.h"
#include "gtest/gtest.h"
#include "tests/testing/long_form.h"

namespace datasetd::testing {

class Storm {
 public:
  static Storm FromEnvironment(uint32_t num_seeds) {
    Storm storm;
    storm.num_seeds_ = num_seeds;
    storm.first_ = Number("DATASETD_STORM_SEED", 1);
    storm.end_ =
        MonotonicNow() + absl::Seconds(Number("DATASETD_STORM_SECONDS", 0));
    return storm;
  }

  // Calls it with one seed after another until one fails. Returns how many
  // there were.
  template <typename Try>
  uint32_t Run(const Try& try_seed) const {
    uint32_t num = 0;
    for (; num < num_seeds_ || MonotonicNow() < end_; ++num) {
      const uint32_t seed = first_ + num;
      SCOPED_TRACE(absl::StrCat("DATASETD_STORM_SEED=", seed));
      try_seed(seed);
      if (::testing::Test::HasFailure()) return num + 1;
    }
    return num;
  }

  std::string Describe(uint32_t num_seeds) const {
    return absl::StrCat("seeds ", first_, " to ", first_ + num_seeds - 1);
  }

 private:
  static uint32_t Number(const char* variable, uint32_t otherwise) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) return otherwise;
    uint32_t number = 0;
    Require(absl::SimpleAtoi(text, &number), "a variable is a number");
    return number;
  }

  uint32_t num_seeds_ = 0;
  uint32_t first_ = 1;
  absl::Duration end_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_STORM_H_
