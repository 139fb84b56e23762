#include "server/core/bad_sample_filter.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cuda/status_macros.h"

namespace datasetd {
namespace {

constexpr char kAdvice[] =
    "; set bad_samples to skip or replace to load the others";

}  // namespace

absl::Status LocatedStatus(const SampleSource& source, int64_t index,
                           const absl::Status& status) {
  const SampleLocation location = source.Locate(index);
  absl::string_view reason = status.message();
  absl::ConsumePrefix(&reason, absl::StrCat(location.path, ": "));
  const std::string offset =
      location.offset == 0 ? ""
                           : absl::StrCat("offset ", location.offset, ": ");
  return absl::Status(status.code(),
                      absl::StrCat(location.path, ": ", offset, reason));
}

void AddBadSample(const SampleSource& source, int64_t index,
                  const absl::Status& status, BadSampleReport& report) {
  ++report.num_samples;
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

BadSampleFilter::BadSampleFilter(BadSamplePolicy policy,
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
  if (policy_ == BadSamplePolicy::kFail) {
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
  bool are_good = true;
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i].ok()) continue;
    are_good = false;
    DATASETD_RETURN_IF_ERROR(
        Add(first + static_cast<int64_t>(i), statuses[i]));
  }
  if (policy_ == BadSamplePolicy::kReplace) return Replace(statuses, fields);
  if (are_good) return static_cast<int64_t>(statuses.size());
  return Skip(statuses, fields);
}

void BadSampleFilter::Copy(absl::Span<const absl::Span<uint8_t>> fields,
                           int64_t from, int64_t to) const {
  for (size_t f = 0; f < fields.size(); ++f) {
    std::memcpy(fields[f].data() + to * sample_bytes_[f],
                fields[f].data() + from * sample_bytes_[f],
                static_cast<size_t>(sample_bytes_[f]));
  }
}

absl::StatusOr<int64_t> BadSampleFilter::Skip(
    absl::Span<const absl::Status> statuses,
    absl::Span<const absl::Span<uint8_t>> fields) {
  int64_t kept = 0;
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (!statuses[i].ok()) continue;
    const int64_t from = static_cast<int64_t>(i);
    if (from != kept) Copy(fields, from, kept);
    ++kept;
  }
  return kept;
}

absl::StatusOr<int64_t> BadSampleFilter::Replace(
    absl::Span<const absl::Status> statuses,
    absl::Span<const absl::Span<uint8_t>> fields) {
  const int64_t count = static_cast<int64_t>(statuses.size());
  const auto is_good = [&](int64_t i) {
    return statuses[static_cast<size_t>(i)].ok();
  };
  int64_t good = 0;
  while (good < count && !is_good(good)) ++good;
  if (good == count && last_good_.empty()) {
    // What follows may be good, but these would have to wait for it.
    return absl::Status(
        absl::StatusCode::kDataLoss,
        absl::StrCat("the first ", report_.num_samples,
                     " samples are all bad, so that there is none to replace "
                     "them by; set bad_samples to skip"));
  }
  for (int64_t i = 0; i < good; ++i) {
    if (last_good_.empty()) {
      Copy(fields, good, i);
      continue;
    }
    for (size_t f = 0; f < fields.size(); ++f) {
      std::copy(last_good_[f].begin(), last_good_[f].end(),
                fields[f].data() + i * sample_bytes_[f]);
    }
  }
  for (int64_t i = good + 1; i < count; ++i) {
    if (is_good(i)) {
      good = i;
    } else {
      Copy(fields, i - 1, i);
    }
  }
  if (good < count) {
    last_good_.resize(fields.size());
    for (size_t f = 0; f < fields.size(); ++f) {
      const uint8_t* sample = fields[f].data() + good * sample_bytes_[f];
      last_good_[f].assign(sample, sample + sample_bytes_[f]);
    }
  }
  return count;
}

absl::Status BadSampleFilter::NothingLeft() const {
  const BadSample& first = report_.listed.front();
  return absl::DataLossError(
      absl::StrCat("all ", report_.num_samples, " samples are bad; the first: ",
                   first.path, ": ", first.reason));
}

}  // namespace datasetd
