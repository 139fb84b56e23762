#include "server/load/bad_sample_filter.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_encoded_source.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeEncodedSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::IsOkAndHolds;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Fields of one byte and of two: 'a' and "aA" for good samples, '?' for bad.
class BadSampleFilterTest : public ::testing::Test {
 protected:
  BadSampleFilter Filter(v1::BadSamplePolicy policy, int64_t max_bad = 100) {
    return BadSampleFilter(policy, max_bad, &source_, {1, 2});
  }

  // Returns `chunk` without its bad samples, which are written '?'.
  absl::StatusOr<std::string> Run(BadSampleFilter& filter, std::string chunk) {
    std::vector<absl::Status> statuses;
    std::string pairs;
    for (const char c : chunk) {
      statuses.push_back(c == '?' ? bad_ : absl::OkStatus());
      pairs += {c, static_cast<char>(c == '?' ? '?' : c - 32)};
    }
    const auto span = [](std::string& bytes) {
      return absl::Span<uint8_t>(reinterpret_cast<uint8_t*>(bytes.data()),
                                 bytes.size());
    };
    const std::vector<absl::Span<uint8_t>> fields = {span(chunk), span(pairs)};
    const auto count = filter.Filter(next_, statuses, fields);
    next_ += static_cast<int64_t>(chunk.size());
    if (!count.ok()) return count.status();
    const auto kept = static_cast<size_t>(*count);
    for (size_t i = 0; i < kept; ++i) {
      EXPECT_EQ(pairs.substr(2 * i, 2),
                (std::string{chunk[i], static_cast<char>(chunk[i] - 32)}));
    }
    return chunk.substr(0, kept);
  }

  FakeEncodedSource source_{100, [](int64_t) { return ImageSize{1, 1}; }};
  absl::Status bad_ = absl::DataLossError("torn");
  int64_t next_ = 0;
};

TEST_F(BadSampleFilterTest, SkipKeepsTheGoodInOrder) {
  BadSampleFilter filter = Filter(v1::BAD_SAMPLE_POLICY_SKIP);
  EXPECT_EQ(*Run(filter, "?ab??c?"), "abc");
  EXPECT_EQ(*Run(filter, "de"), "de");
  EXPECT_EQ(*Run(filter, "??"), "");
  EXPECT_EQ(filter.report().num_samples, 6);
  ASSERT_THAT(filter.report().listed, SizeIs(6));
  EXPECT_EQ(
      filter.report().listed[1],
      (BadSample{
          .index = 3, .path = "/fake/3", .offset = 30, .reason = "torn"}));
}

TEST_F(BadSampleFilterTest, ReplaceTakesTheGoodOneBeforeOrTheFirst) {
  BadSampleFilter filter = Filter(v1::BAD_SAMPLE_POLICY_REPLACE);
  EXPECT_EQ(*Run(filter, "??ab?c?"), "aaabbcc");
  EXPECT_EQ(*Run(filter, "?d??"), "cddd");
  EXPECT_EQ(*Run(filter, "??"), "dd");
  EXPECT_EQ(*Run(filter, "e?"), "ee");
  EXPECT_EQ(filter.report().num_samples, 10);
}

TEST_F(BadSampleFilterTest, ReplaceNeedsAGoodOneInTheFirstChunk) {
  BadSampleFilter filter = Filter(v1::BAD_SAMPLE_POLICY_REPLACE);
  EXPECT_THAT(Run(filter, "???"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("the first 3 samples are all bad")));
}

TEST_F(BadSampleFilterTest, FailNamesTheFirstWithPathAndWhatToDo) {
  BadSampleFilter filter = Filter(v1::BAD_SAMPLE_POLICY_FAIL);
  EXPECT_EQ(*Run(filter, "abc"), "abc");
  EXPECT_THAT(Run(filter, "??d"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(StartsWith("/fake/3: offset 30: torn"),
                             HasSubstr("set bad_samples to skip"))));
}

TEST_F(BadSampleFilterTest, APathIsNotNamedTwice) {
  bad_ = absl::NotFoundError("/fake/0: no such file");
  BadSampleFilter fail = Filter(v1::BAD_SAMPLE_POLICY_FAIL);
  EXPECT_THAT(Run(fail, "?"), StatusIs(absl::StatusCode::kNotFound,
                                       StartsWith("/fake/0: no such file;")));
  next_ = 0;
  BadSampleFilter skip = Filter(v1::BAD_SAMPLE_POLICY_SKIP);
  EXPECT_EQ(*Run(skip, "?"), "");
  EXPECT_EQ(skip.report().listed[0].reason, "no such file");
  EXPECT_THAT(skip.NothingLeft(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("all 1 samples are bad; the first: /fake/0: "
                                 "no such file")));
}

TEST_F(BadSampleFilterTest, TheLoadEndsAboveTheLimit) {
  for (const v1::BadSamplePolicy policy :
       {v1::BAD_SAMPLE_POLICY_SKIP, v1::BAD_SAMPLE_POLICY_REPLACE}) {
    next_ = 0;
    BadSampleFilter filter = Filter(policy, 3);
    EXPECT_THAT(Run(filter, "a???"), IsOk());
    EXPECT_THAT(Run(filter, "b?c"),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("4 bad samples, and "
                                         "max_bad_samples is 3"),
                               HasSubstr("/fake/5"))));
  }
}

TEST_F(BadSampleFilterTest, OtherErrorsEndTheLoadWhateverThePolicy) {
  for (const absl::Status& error :
       {absl::InternalError("x"), absl::CancelledError("x"),
        absl::ResourceExhaustedError("x"),
        absl::FailedPreconditionError("x")}) {
    bad_ = error;
    BadSampleFilter filter = Filter(v1::BAD_SAMPLE_POLICY_SKIP);
    next_ = 0;
    EXPECT_THAT(Run(filter, "?"), StatusIs(error.code(), "/fake/0: x"));
  }
}

TEST_F(BadSampleFilterTest, WhatTheDiskDoesNotGiveMayBeGoodAnotherTime) {
  BadSampleFilter filter = Filter(v1::BAD_SAMPLE_POLICY_SKIP);
  bad_ = absl::UnavailableError("reading at offset 0: Input/output error");
  EXPECT_THAT(Run(filter, "a?b"), IsOkAndHolds("ab"));
  bad_ = InBytes(absl::DataLossError("torn"));
  EXPECT_THAT(Run(filter, "?c"), IsOkAndHolds("c"));
  EXPECT_EQ(filter.report().num_samples, 2);
  EXPECT_EQ(filter.report().num_transient, 1);
}

TEST_F(BadSampleFilterTest, TheListIsBoundedAndTheCountIsNot) {
  BadSampleFilter filter = Filter(v1::BAD_SAMPLE_POLICY_SKIP, 5000);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(Run(filter, std::string(99, '?') + "a"), IsOk());
  }
  EXPECT_EQ(filter.report().num_samples, 1980);
  EXPECT_THAT(filter.report().listed, SizeIs(kMaxListedBadSamples));
}

}  // namespace
}  // namespace datasetd
