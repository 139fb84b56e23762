#include "server/readers/formats/part_reader.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

// Nodes, times the pieces of each.
constexpr int64_t kMaxParts = int64_t{1} << 20;

struct Parts {
  std::vector<int64_t> numbers;  // ascending
  int64_t count = 0;
};

absl::StatusOr<Parts> Parse(const std::string& text) {
  const auto wrong = [&] {
    return WrongOption(kPartOption, text.substr(0, 100),
                       "I/N or I,J,.../N, ascending, from 0 and below N, which "
                       "is at most ",
                       kMaxParts);
  };
  const std::vector<absl::string_view> halves = absl::StrSplit(text, '/');
  Parts parts;
  if (halves.size() != 2 || !absl::SimpleAtoi(halves[1], &parts.count) ||
      parts.count < 1 || parts.count > kMaxParts) {
    return wrong();
  }
  int64_t last = -1;
  for (const absl::string_view item : absl::StrSplit(halves[0], ',')) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(item, &number) || number <= last ||
        number >= parts.count) {
      return wrong();
    }
    parts.numbers.push_back(number);
    last = number;
  }
  return parts;
}

class PartReader : public Reader {
 public:
  PartReader(std::unique_ptr<Reader> whole, Parts parts)
      : whole_(std::move(whole)),
        parts_(std::move(parts)),
        info_(whole_->info()) {
    const int64_t total = info_.num_samples;
    if (info_.is_encoded) {
      const int64_t rest = total % parts_.count;
      info_.num_samples =
          total / parts_.count * static_cast<int64_t>(parts_.numbers.size()) +
          (std::lower_bound(parts_.numbers.begin(), parts_.numbers.end(),
                            rest) -
           parts_.numbers.begin());
      return;
    }
    info_.num_samples = 0;
    for (const int64_t number : parts_.numbers) {
      const int64_t begin = Bound(number);
      const int64_t end = Bound(number + 1);
      info_.num_samples += end - begin;
      if (begin == end) continue;
      if (!ranges_.empty() && ranges_.back().end == begin) {
        ranges_.back().end = end;
      } else {
        ranges_.push_back({begin, end});
      }
    }
  }

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    std::vector<absl::Span<uint8_t>> left(fields.begin(), fields.end());
    for (const Range& range : ranges_) {
      const int64_t size = range.end - range.begin;
      const int64_t block = std::min(count, size - first);
      if (block > 0) {
        std::vector<absl::Span<uint8_t>> now;
        for (size_t f = 0; f < left.size(); ++f) {
          const auto bytes =
              static_cast<size_t>(block * info_.fields[f].sample_bytes());
          now.push_back(left[f].subspan(0, bytes));
          left[f].remove_prefix(bytes);
        }
        DATASETD_RETURN_IF_ERROR(whole_->Read(range.begin + first, block, now));
        count -= block;
      }
      first = std::max<int64_t>(first - size, 0);
    }
    return absl::OkStatus();
  }

  absl::Status Fetch(int64_t index, RawSample& raw) const override {
    return whole_->Fetch(InWhole(index), raw);
  }
  absl::Status Probe(int64_t index, const RawSample& raw,
                     SampleProbe& probe) const override {
    return whole_->Probe(InWhole(index), raw, probe);
  }
  absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const override {
    return whole_->Decode(InWhole(index), raw, fields);
  }
  SampleLocation Locate(int64_t index) const override {
    return whole_->Locate(InWhole(index));
  }
  void AllowSmallerImages(ImageSize at_least) override {
    whole_->AllowSmallerImages(at_least);
  }

 private:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Returns where part `number` of a plain source begins.
  int64_t Bound(int64_t number) const {
    return static_cast<int64_t>(
        static_cast<unsigned __int128>(whole_->info().num_samples) *
        static_cast<unsigned __int128>(number) /
        static_cast<unsigned __int128>(parts_.count));
  }

  int64_t InWhole(int64_t index) const {
    if (!info_.is_encoded) {
      for (const Range& range : ranges_) {
        if (index < range.end - range.begin) return range.begin + index;
        index -= range.end - range.begin;
      }
    }
    const auto size = static_cast<int64_t>(parts_.numbers.size());
    return index / size * parts_.count +
           parts_.numbers[static_cast<size_t>(index % size)];
  }

  const std::unique_ptr<Reader> whole_;
  const Parts parts_;
  SourceInfo info_;
  std::vector<Range> ranges_;  // of a plain source
};

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> TakePart(std::unique_ptr<Reader> whole,
                                                 const std::string& text) {
  DATASETD_ASSIGN_OR_RETURN(Parts parts, Parse(text));
  const int64_t total = whole->info().num_samples;
  auto part = std::make_unique<PartReader>(std::move(whole), std::move(parts));
  if (part->info().num_samples > 0) return part;
  return absl::InvalidArgumentError(absl::StrCat(
      "option part is '", text, "', and of ", total, " samples none is in it"));
}

}  // namespace datasetd
