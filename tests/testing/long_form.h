// What tests leave to their long form, that of tests/run_all.sh --full.

#ifndef DATASETD_TESTS_TESTING_LONG_FORM_H_
#define DATASETD_TESTS_TESTING_LONG_FORM_H_

#include <cstddef>
#include <cstdlib>

namespace datasetd::testing {

// True in the long form of the tests.
inline bool IsFull() { return std::getenv("DATASETD_TEST_FULL") != nullptr; }

// Whether to run a case of a product of axes: all in the long form, and else
// one in `share`. `sum` is the sum of the indices that the case has on the
// axes. If three axes have `share` values each, every pair of values of any two
// axes is in some case of the short form.
inline bool RunsCase(size_t sum, size_t share) {
  return IsFull() || sum % share == 0;
}

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_LONG_FORM_H_
