#include "server/load/bad_sample_filter.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr char kAdvice[] =
    "; set bad_samples to skip or replace to load the others";

}  // namespace

void AddBadSample(const SampleSource& source, int64_t index,
                  const absl::Status& status, BadSampleReport& report) {
  ++report.num_samples;
  if (!IsInBytes(status)) ++report.num_transient;
  if (report.listed.size() >= kMaxListedBadSamples) return;
  const SampleLocation location = source.Locate(index);
  absl::string_view reason = status.message();
  absl::ConsumePrefix(&reason, absl::StrCat(location.path, ": "));
  const size_t num_bytes = location.path.size() + reason.size();
  if (num_bytes > kMaxReportBytes - report.num_text_bytes) return;
  report.num_text_bytes += num_bytes;
  report.listed.push_back(
      {index, location.path, location.offset, std::string(reason)});
}

BadSampleFilter::BadSampleFilter(v1::BadSamplePolicy policy,
                                 int64_t max_bad_samples,
                                 const SampleSource* source,
                                 std::vector<int64_t> sample_bytes)
    : policy_(policy),
      max_bad_samples_(max_bad_samples),
      source_(source),
      sample_bytes_(std::move(sample_bytes)) {}

absl::Status BadSampleFilter::Add(int64_t index, const absl::Status& status) {
  const absl::Status located = LocatedStatus(*source_, index, status);
  if (!IsBadSample(status)) return located;
  if (policy_ == v1::BAD_SAMPLE_POLICY_FAIL) {
    return absl::Status(located.code(),
                        absl::StrCat(located.message(), kAdvice));
  }
  AddBadSample(*source_, index, status, report_);
  if (report_.num_samples <= max_bad_samples_) return absl::OkStatus();
  return absl::Status(
      located.code(),
      absl::StrCat(report_.num_samples, " bad samples, and max_bad_samples is ",
                   max_bad_samples_, "; the last one: ", located.message()));
}

absl::StatusOr<int64_t> BadSampleFilter::Filter(
    int64_t first, absl::Span<const absl::Status> statuses,
    absl::Span<const absl::Span<uint8_t>> fields) {
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i].ok()) continue;
    DATASETD_RETURN_IF_ERROR(Add(first + static_cast<int64_t>(i), statuses[i]));
  }
  rows_.clear();
  if (policy_ == v1::BAD_SAMPLE_POLICY_REPLACE) {
    DATASETD_RETURN_IF_ERROR(Replace(statuses));
  } else {
    Skip(statuses);
  }
  Arrange(fields);
  return static_cast<int64_t>(rows_.size());
}

void BadSampleFilter::Skip(absl::Span<const absl::Status> statuses) {
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i].ok()) rows_.push_back(static_cast<int64_t>(i));
  }
}

absl::Status BadSampleFilter::Replace(absl::Span<const absl::Status> statuses) {
  int64_t row = kEarlierRow;
  if (last_good_.empty()) {
    const auto good =
        std::find_if(statuses.begin(), statuses.end(),
                     [](const absl::Status& status) { return status.ok(); });
    if (good == statuses.end()) {
      // Later chunks may have good samples, but these would have to wait for
      // them.
      return absl::Status(
          absl::StatusCode::kDataLoss,
          absl::StrCat("the first ", report_.num_samples,
                       " samples are all bad, so that there is none to replace "
                       "them by; set bad_samples to skip"));
    }
    row = good - statuses.begin();
  }
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i].ok()) row = static_cast<int64_t>(i);
    rows_.push_back(row);
  }
  return absl::OkStatus();
}

void BadSampleFilter::Arrange(absl::Span<const absl::Span<uint8_t>> fields) {
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto bytes = static_cast<size_t>(sample_bytes_[f]);
    uint8_t* to = fields[f].data();
    for (size_t i = 0; i < rows_.size(); ++i, to += bytes) {
      const int64_t row = rows_[i];
      if (row == kEarlierRow) {
        std::copy(last_good_[f].begin(), last_good_[f].end(), to);
      } else if (row != static_cast<int64_t>(i)) {
        std::memcpy(to, fields[f].data() + row * sample_bytes_[f], bytes);
      }
    }
  }
  if (policy_ != v1::BAD_SAMPLE_POLICY_REPLACE || rows_.empty() ||
      rows_.back() == kEarlierRow) {
    return;
  }
  last_good_.resize(fields.size());
  for (size_t f = 0; f < fields.size(); ++f) {
    const uint8_t* const sample =
        fields[f].data() + rows_.back() * sample_bytes_[f];
    last_good_[f].assign(sample, sample + sample_bytes_[f]);
  }
}

absl::Status BadSampleFilter::NothingLeft() const {
  const BadSample& first = report_.listed.front();
  return absl::DataLossError(absl::StrCat(
      "all ", report_.num_samples, " samples are bad; the first: ", first.path,
      ": ", first.reason));
}

}  // namespace datasetd
