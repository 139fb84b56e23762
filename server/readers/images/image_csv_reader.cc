#include "server/readers/images/image_csv_reader.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/readers/csv_line.h"
#include "server/readers/images/image_list.h"
#include "server/readers/images/image_options.h"
#include "server/readers/list_memory.h"
#include "server/readers/option_values.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr int64_t kMaxCsvBytes = 256 << 20;
constexpr size_t kMaxLineBytes = 64 << 10;
// A node of the map of classes.
constexpr int64_t kMapNodeBytes = 64;
constexpr int64_t kMaxLabel = int64_t{1} << 62;
constexpr absl::string_view kPathColumn = "path_column";
constexpr absl::string_view kLabelColumn = "label_column";

absl::Status LineError(const std::string& path, int64_t line,
                       absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": line ", line, ": ", what));
}

bool IsHeader(const std::vector<std::string>& values) {
  const std::string first = absl::AsciiStrToLower(values[0]);
  return first == "path" || first == "file" || first == "filename" ||
         first == "image";
}

class CsvParser {
 public:
  using AddRow = std::function<absl::Status(const std::string& path,
                                            absl::string_view label)>;

  CsvParser(const v1::DatasetSpec& spec) : spec_(spec) {}

  // Ends with the first error of `add`.
  absl::Status Parse(absl::string_view text, const AddRow& add) {
    absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
    while (!text.empty()) {
      ++line_number_;
      const size_t end = std::min(text.find('\n'), text.size());
      absl::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      absl::ConsumeSuffix(&line, "\r");
      if (line.size() > kMaxLineBytes) {
        return Error(absl::StrCat("more than ", kMaxLineBytes, " bytes"));
      }
      if (absl::StripAsciiWhitespace(line).empty()) continue;
      if (const absl::Status status = SplitCsvLine(line, values_);
          !status.ok()) {
        return Error(status.message());
      }
      if (is_first_) {
        is_first_ = false;
        if (IsHeader(values_)) {
          DATASETD_RETURN_IF_ERROR(ReadHeader());
          continue;
        }
        if (!Option(kPathColumn).empty() || !Option(kLabelColumn).empty()) {
          return Error(
              "the options path_column and label_column need a header, whose "
              "first column is path, file, filename or image");
        }
      }
      if (values_.size() != num_columns_) {
        return Error(
            absl::StrCat(values_.size(), " columns, expected ", num_columns_));
      }
      if (values_[path_column_].empty()) return Error("the path is empty");
      DATASETD_RETURN_IF_ERROR(
          add(values_[path_column_],
              absl::StripAsciiWhitespace(values_[label_column_])));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return LineError(spec_.path(), line_number_, what);
  }
  std::string Option(absl::string_view name) const {
    return OptionOr(spec_, name, "");
  }

  absl::Status ReadHeader() {
    num_columns_ = values_.size();
    DATASETD_ASSIGN_OR_RETURN(path_column_, FindColumn(kPathColumn, 0));
    DATASETD_ASSIGN_OR_RETURN(label_column_, FindColumn(kLabelColumn, 1));
    if (path_column_ == label_column_) {
      return Error("path and label are the same column");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> FindColumn(absl::string_view option,
                                    size_t otherwise) const {
    const std::string name = Option(option);
    if (name.empty() && otherwise < values_.size()) return otherwise;
    const auto found = std::find(values_.begin(), values_.end(), name);
    if (!name.empty() && found != values_.end()) {
      return static_cast<size_t>(found - values_.begin());
    }
    return Error(
        absl::StrCat("no column for ", option, " '",
                     absl::Utf8SafeCHexEscape(name), "'; there are: ",
                     absl::Utf8SafeCHexEscape(absl::StrJoin(values_, ", "))));
  }

  const v1::DatasetSpec& spec_;
  std::vector<std::string> values_;
  int64_t line_number_ = 0;
  bool is_first_ = true;
  size_t num_columns_ = 2;
  size_t path_column_ = 0;
  size_t label_column_ = 1;
};

bool ParseNumber(const std::string& text, int64_t* value) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, value) && *value <= kMaxLabel;
}

int64_t LabelBytes(absl::string_view label) {
  return static_cast<int64_t>(sizeof(std::string) + label.size() + 1);
}

absl::Status SetLabels(const std::vector<std::string>& texts, ImageList& list) {
  DATASETD_RETURN_IF_ERROR(
      list.memory->Add(static_cast<int64_t>(texts.size() * sizeof(int64_t))));
  list.labels.resize(texts.size());
  bool are_numbers = true;
  for (size_t i = 0; i < texts.size() && are_numbers; ++i) {
    are_numbers = ParseNumber(texts[i], &list.labels[i]);
  }
  if (are_numbers) return absl::OkStatus();
  std::map<absl::string_view, int64_t> classes;
  for (const std::string& text : texts) {
    const bool is_new = classes.emplace(text, 0).second;
    if (!is_new) continue;
    // Its node, and its name, where a byte may become four.
    DATASETD_RETURN_IF_ERROR(
        list.memory->Add(kMapNodeBytes + 4 * LabelBytes(text)));
  }
  for (auto& [name, index] : classes) {
    index = static_cast<int64_t>(list.class_names.size());
    list.class_names.push_back(PrintableUtf8(name));
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    list.labels[i] = classes.at(texts[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenImageCsvReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  std::vector<absl::string_view> known(std::begin(kImageOptionNames),
                                       std::end(kImageOptionNames));
  known.push_back(kLabelColumn);
  known.push_back(kPathColumn);
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, known));
  DATASETD_ASSIGN_OR_RETURN(const ImageOptions options,
                            ParseImageOptions(spec));
  DATASETD_ASSIGN_OR_RETURN(const auto file, context.files.Open(spec.path()));
  if (file->info().size_bytes > kMaxCsvBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.path(), ": ", file->info().size_bytes,
                     " bytes, and a CSV file may have ", kMaxCsvBytes));
  }
  // Pays for the text and its labels, which go when the source is open.
  ListMemory passing(context.account);
  DATASETD_RETURN_IF_ERROR(passing.Add(file->info().size_bytes));
  std::string text(static_cast<size_t>(file->info().size_bytes), '\0');
  DATASETD_RETURN_IF_ERROR(ReadExactly(
      *file, 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  ImageList list;
  list.memory = std::make_unique<ListMemory>(context.account);
  list.other_files.push_back(file->info());
  const std::string directory = spec.path().substr(0, spec.path().rfind('/'));
  std::vector<std::string> labels;
  const auto add = [&](const std::string& path,
                       absl::string_view label) -> absl::Status {
    FileInfo image;
    image.path = absl::StartsWith(path, "/") ? path : JoinPath(directory, path);
    DATASETD_RETURN_IF_ERROR(list.memory->Add(ListedBytes(image)));
    DATASETD_RETURN_IF_ERROR(passing.Add(LabelBytes(label)));
    // A file that cannot be opened is a bad sample, found when it is read.
    const auto info = context.files.Stat(image.path);
    if (!info.ok() && !IsOfPath(info.status())) return info.status();
    if (info.ok()) {
      image.size_bytes = info->size_bytes;
      image.mtime_nanoseconds = info->mtime_nanoseconds;
    }
    list.images.push_back(std::move(image));
    labels.emplace_back(label);
    return absl::OkStatus();
  };
  DATASETD_RETURN_IF_ERROR(CsvParser(spec).Parse(text, add));
  if (labels.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.path(),
                     ": empty: zero samples, expected lines of a "
                     "path and a label"));
  }
  DATASETD_RETURN_IF_ERROR(SetLabels(labels, list));
  return OpenImageList(std::move(list), options, context.files,
                       context.account);
}

}  // namespace datasetd
