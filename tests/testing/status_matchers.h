// Matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(file.Close(), IsOk());
//   EXPECT_THAT(Parse("7"), IsOkAndHolds(7));
//   EXPECT_THAT(Parse("x"),
//               StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("x")));
//
// There is no "not ok": expect the code.

#ifndef DATASETD_TESTS_TESTING_STATUS_MATCHERS_H_
#define DATASETD_TESTS_TESTING_STATUS_MATCHERS_H_

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd::testing {

inline const absl::Status& GetStatus(const absl::Status& status) {
  return status;
}

template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << "which is " << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

MATCHER_P2(StatusIs, code, message_matcher,
           "is " + absl::StatusCodeToString(code) + " with a message that " +
               ::testing::DescribeMatcher<std::string>(
                   ::testing::MatcherCast<std::string>(message_matcher),
                   negation)) {
  const absl::Status& status = GetStatus(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code &&
         ::testing::Matches(::testing::MatcherCast<std::string>(
             message_matcher))(std::string(status.message()));
}

inline auto StatusIs(absl::StatusCode code) {
  return StatusIs(code, ::testing::Matcher<std::string>(::testing::_));
}

// Implementation of IsOkAndHolds: the value itself is matched, uncopied.
template <typename StatusOr>
class IsOkAndHoldsMatcherImpl
    : public ::testing::MatcherInterface<const StatusOr&> {
 public:
  using Value = typename StatusOr::value_type;

  template <typename Inner>
  explicit IsOkAndHoldsMatcherImpl(Inner&& inner)
      : inner_(::testing::SafeMatcherCast<const Value&>(
            std::forward<Inner>(inner))) {}

  void DescribeTo(std::ostream* os) const override {
    *os << "is OK and holds a value that ";
    inner_.DescribeTo(os);
  }
  void DescribeNegationTo(std::ostream* os) const override {
    *os << "is an error or holds a value that ";
    inner_.DescribeNegationTo(os);
  }
  bool MatchAndExplain(
      const StatusOr& actual,
      ::testing::MatchResultListener* listener) const override {
    if (!actual.ok()) {
      *listener << "which is " << actual.status().ToString();
      return false;
    }
    return inner_.MatchAndExplain(*actual, listener);
  }

 private:
  const ::testing::Matcher<const Value&> inner_;
};

template <typename Inner>
class IsOkAndHoldsMatcher {
 public:
  explicit IsOkAndHoldsMatcher(Inner inner) : inner_(std::move(inner)) {}

  template <typename StatusOr>
  operator ::testing::Matcher<StatusOr>() const {  // NOLINT: implicit in gMock
    return ::testing::Matcher<StatusOr>(
        new IsOkAndHoldsMatcherImpl<std::decay_t<StatusOr>>(inner_));
  }

 private:
  const Inner inner_;
};

template <typename Inner>
IsOkAndHoldsMatcher<std::decay_t<Inner>> IsOkAndHolds(Inner&& inner) {
  return IsOkAndHoldsMatcher<std::decay_t<Inner>>(std::forward<Inner>(inner));
}

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_STATUS_MATCHERS_H_
