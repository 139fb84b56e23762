#include "server/dataset/bad_sample_text.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace datasetd {

std::string BadSamplesToText(const BadSampleReport& report) {
  std::string text = absl::StrCat(report.num_samples, "\n");
  for (const BadSample& sample : report.listed) {
    absl::StrAppend(&text, sample.index, "\t", sample.offset, "\t",
                    absl::CEscape(sample.path), "\t",
                    absl::CEscape(sample.reason), "\n");
  }
  return text;
}

absl::StatusOr<BadSampleReport> BadSamplesFromText(absl::string_view text) {
  const absl::Status damaged =
      absl::DataLossError("the report of bad samples is damaged");
  BadSampleReport report;
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  // The last line must be terminated.
  if (lines.size() < 2 || !lines.back().empty() ||
      lines.size() - 2 > kMaxListedBadSamples ||
      !absl::SimpleAtoi(lines[0], &report.num_samples)) {
    return damaged;
  }
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    const std::vector<absl::string_view> parts = absl::StrSplit(lines[i], '\t');
    BadSample sample;
    if (parts.size() != 4 || !absl::SimpleAtoi(parts[0], &sample.index) ||
        !absl::SimpleAtoi(parts[1], &sample.offset) ||
        !absl::CUnescape(parts[2], &sample.path) ||
        !absl::CUnescape(parts[3], &sample.reason)) {
      return damaged;
    }
    report.num_text_bytes += sample.path.size() + sample.reason.size();
    report.listed.push_back(std::move(sample));
  }
  if (report.num_text_bytes > kMaxReportBytes ||
      report.num_samples < static_cast<int64_t>(report.listed.size())) {
    return damaged;
  }
  return report;
}

}  // namespace datasetd
