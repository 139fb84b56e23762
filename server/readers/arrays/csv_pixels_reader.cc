#include "server/readers/arrays/csv_pixels_reader.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "server/readers/arrays/line_reader.h"
#include "server/readers/option_values.h"
#include "server/readers/read_buffers.h"
#include "server/readers/source_file.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr absl::string_view kSplits[] = {"train", "public_test", "private_test",
                                         "all"};
constexpr int64_t kMaxExtent = 1024;
constexpr size_t kMaxColumns = 64;

// Column indices; -1: missing.
struct Columns {
  int pixels = -1;
  int label = -1;
  int usage = -1;
  size_t count = 0;
};

absl::string_view Unquote(absl::string_view cell) {
  cell = absl::StripAsciiWhitespace(cell);
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
    cell = cell.substr(1, cell.size() - 2);
  }
  return cell;
}

bool IsInSplit(absl::string_view usage, absl::string_view split) {
  if (split == "all") return true;
  if (split == "train") return absl::EqualsIgnoreCase(usage, "training");
  if (split == "public_test") {
    return absl::EqualsIgnoreCase(usage, "publictest");
  }
  return absl::EqualsIgnoreCase(usage, "privatetest");
}

// The rows of one split.
class Rows {
 public:
  Rows(const RandomAccessFile* file, const std::string& split)
      : file_(file), split_(split), lines_(file) {}

  absl::Status ReadHeader();
  // False at the end. Stores the cells of a row in pixels() and label().
  absl::StatusOr<bool> Next();

  absl::string_view pixels() const { return pixels_; }
  absl::StatusOr<int64_t> label() const;
  bool has_label() const { return columns_.label >= 0; }

  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_->info().path, ": line ", lines_.line_number(),
                     ", offset ", lines_.line_offset(), ": ", parts...));
  }

 private:
  const RandomAccessFile* const file_;
  const std::string split_;
  LineReader lines_;
  Columns columns_;
  absl::string_view pixels_;
  absl::string_view label_;
};

absl::Status Rows::ReadHeader() {
  absl::string_view line;
  DATASETD_RETURN_IF_ERROR(lines_.Next(&line).status());
  absl::ConsumePrefix(&line, "\xef\xbb\xbf");
  for (absl::string_view cell : absl::StrSplit(line, ',')) {
    cell = Unquote(cell);
    const int place = static_cast<int>(columns_.count++);
    int* column = nullptr;
    if (absl::EqualsIgnoreCase(cell, "pixels")) column = &columns_.pixels;
    if (absl::EqualsIgnoreCase(cell, "emotion") ||
        absl::EqualsIgnoreCase(cell, "label")) {
      column = &columns_.label;
    }
    if (absl::EqualsIgnoreCase(cell, "usage")) column = &columns_.usage;
    if (columns_.count > kMaxColumns || (column != nullptr && *column >= 0)) {
      return Error("more than ", kMaxColumns,
                   " columns, or two of one meaning");
    }
    if (column != nullptr) *column = place;
  }
  if (columns_.pixels >= 0) return absl::OkStatus();
  return Error(
      "no column is called pixels; expected a first row as "
      "emotion,pixels,Usage, found '",
      absl::Utf8SafeCHexEscape(line.substr(0, 80)), "'");
}

absl::StatusOr<bool> Rows::Next() {
  absl::string_view line;
  while (true) {
    DATASETD_ASSIGN_OR_RETURN(const bool has_line, lines_.Next(&line));
    if (!has_line) return false;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    size_t count = 0;
    absl::string_view usage;
    for (const absl::string_view cell : absl::StrSplit(line, ',')) {
      const int place = static_cast<int>(count++);
      if (place == columns_.pixels) pixels_ = Unquote(cell);
      if (place == columns_.label) label_ = Unquote(cell);
      if (place == columns_.usage) usage = Unquote(cell);
    }
    if (count != columns_.count) {
      return Error(count, " columns, expected ", columns_.count,
                   " as in the first row");
    }
    if (columns_.usage < 0 || IsInSplit(usage, split_)) return true;
  }
}

absl::StatusOr<int64_t> Rows::label() const {
  int64_t value = 0;
  if (absl::SimpleAtoi(label_, &value)) return value;
  return Error("the label is '", absl::Utf8SafeCHexEscape(label_.substr(0, 40)),
               "', expected a whole number");
}

class CsvPixelsReader : public Reader {
 public:
  CsvPixelsReader(SourceInfo info, std::unique_ptr<RandomAccessFile> file,
                  const std::string& split)
      : info_(std::move(info)),
        file_(std::move(file)),
        rows_(file_.get(), split) {}

  // REQUIRES: called once, first.
  absl::Status Begin() { return rows_.ReadHeader(); }

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, position_, count, fields));
    const size_t num_pixels =
        static_cast<size_t>(info_.fields[0].num_elements());
    for (int64_t i = 0; i < count; ++i, ++position_) {
      DATASETD_ASSIGN_OR_RETURN(const bool has_row, rows_.Next());
      if (!has_row) {
        return absl::DataLossError(
            absl::StrCat(file_->info().path, ": ", position_, " rows, it had ",
                         info_.num_samples, " when it was opened"));
      }
      DATASETD_RETURN_IF_ERROR(ParsePixels(
          fields[0].subspan(static_cast<size_t>(i) * num_pixels, num_pixels)));
      if (!rows_.has_label()) continue;
      DATASETD_ASSIGN_OR_RETURN(const int64_t label, rows_.label());
      memcpy(fields[1].data() + static_cast<size_t>(i) * sizeof(label), &label,
             sizeof(label));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ParsePixels(absl::Span<uint8_t> pixels) {
    size_t count = 0;
    const absl::string_view text = rows_.pixels();
    for (size_t i = 0; i < text.size();) {
      if (text[i] == ' ') {
        ++i;
        continue;
      }
      int value = 0;
      const size_t begin = i;
      for (; i < text.size() && text[i] != ' '; ++i) {
        const int digit = text[i] - '0';
        if (digit < 0 || digit > 9 || i - begin == 3) {
          return rows_.Error("pixel ", count, " is '",
                             absl::Utf8SafeCHexEscape(text.substr(begin, 8)),
                             "', expected a whole number of 0 to 255");
        }
        value = 10 * value + digit;
      }
      if (value > 255) {
        return rows_.Error("pixel ", count, " is ", value,
                           ", expected 0 to 255");
      }
      if (count < pixels.size()) pixels[count] = static_cast<uint8_t>(value);
      ++count;
    }
    if (count == pixels.size()) return absl::OkStatus();
    return rows_.Error(count, " pixels, expected ", info_.fields[0].shape[0],
                       " x ", info_.fields[0].shape[1]);
  }

  const SourceInfo info_;
  const std::unique_ptr<RandomAccessFile> file_;
  Rows rows_;
  int64_t position_ = 0;
};

// [H, W, 1], from the options or the number of pixels in the first row.
absl::StatusOr<std::vector<int64_t>> ImageShape(const SourceSpec& spec,
                                                const Rows& rows) {
  DATASETD_ASSIGN_OR_RETURN(int64_t height,
                            IntOption(spec, "height", 0, 1, kMaxExtent));
  DATASETD_ASSIGN_OR_RETURN(int64_t width,
                            IntOption(spec, "width", 0, 1, kMaxExtent));
  int64_t count = 0;
  for (const absl::string_view pixel :
       absl::StrSplit(rows.pixels(), ' ', absl::SkipEmpty())) {
    count += pixel.empty() ? 0 : 1;
  }
  if (height == 0 && width > 0) height = count / width;
  if (width == 0 && height > 0) width = count / height;
  if (height == 0 && width == 0) {
    height = width = static_cast<int64_t>(
        std::llround(std::sqrt(static_cast<double>(count))));
  }
  if (count > 0 && height * width == count) {
    return std::vector<int64_t>{height, width, 1};
  }
  return rows.Error(count, " pixels are not ", height, " x ", width,
                    "; give the options height and width");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenCsvPixelsReader(
    const SourceSpec& spec, const FileSystem& files) {
  DATASETD_ASSIGN_OR_RETURN(const std::string split,
                            ChooseSplit(spec, kSplits));
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, {"height", "width"}));
  DATASETD_ASSIGN_OR_RETURN(
      auto file, OpenSourceFile(files, spec.path, "a CSV file of pixels"));
  SourceInfo info;
  info.files.push_back(file->info());
  Rows rows(file.get(), split);
  DATASETD_RETURN_IF_ERROR(rows.ReadHeader());
  while (true) {
    DATASETD_ASSIGN_OR_RETURN(const bool has_row, rows.Next());
    if (!has_row) break;
    if (info.num_samples++ > 0) {
      // The row must have enough text for the declared size.
      const int64_t num_pixels = info.fields[0].num_elements();
      if (static_cast<int64_t>(rows.pixels().size()) >= 2 * num_pixels - 1) {
        continue;
      }
      return rows.Error("fewer pixels than the first row's ", num_pixels);
    }
    FieldSpec image = {
        .name = "image", .dtype = Dtype::kUint8, .is_image = true};
    DATASETD_ASSIGN_OR_RETURN(image.shape, ImageShape(spec, rows));
    info.fields.push_back(std::move(image));
  }
  if (info.num_samples == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.path, ": zero samples of split ", split, " after the first row"));
  }
  if (rows.has_label()) {
    info.fields.push_back(
        {.name = "label", .dtype = Dtype::kInt64, .shape = {}});
  }
  auto reader = std::make_unique<CsvPixelsReader>(std::move(info),
                                                  std::move(file), split);
  DATASETD_RETURN_IF_ERROR(reader->Begin());
  return reader;
}

}  // namespace datasetd
