#include "server/readers/images/image_csv_reader.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <optional>
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
#include "server/readers/wanted_classes.h"

namespace datasetd {
namespace {

constexpr int64_t kMaxCsvBytes = 256 << 20;
constexpr size_t kMaxLineBytes = 64 << 10;
// A node of the map of classes.
constexpr int64_t kMapNodeBytes = 64;
constexpr absl::string_view kPathColumn = "path_column";
constexpr absl::string_view kLabelColumn = "label_column";
constexpr absl::string_view kLabelKind = "label_kind";
constexpr absl::string_view kKinds[] = {"auto", "class", "integer", "float"};

// A line of the file.
struct Row {
  int64_t line = 0;
  std::string path;
  std::string label;  // without spaces around it; empty without such a column
};

struct Table {
  std::vector<std::string> first;  // the values of the first line
  int64_t first_line = 0;
  bool are_named = false;  // by options: the first line is a header
  bool has_labels = true;
  size_t path_column = 0;
  size_t label_column = 1;
  std::vector<Row> rows;
};

absl::Status LineError(const v1::DatasetSpec& spec, int64_t line,
                       absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(spec.path(), ": line ", line, ": ", what));
}

std::string Escaped(absl::string_view text) {
  return absl::Utf8SafeCHexEscape(text.substr(0, 100));
}

// -- Columns and rows -------------------------------------------------------

class CsvParser {
 public:
  // Both outlive the parser.
  CsvParser(const v1::DatasetSpec& spec, ListMemory* memory)
      : spec_(spec), memory_(*memory) {}

  // The rows have the first line unless the options name columns.
  absl::StatusOr<Table> Parse(absl::string_view text) {
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
      if (table_.first.empty()) {
        table_.first = values_;
        table_.first_line = line_number_;
        DATASETD_RETURN_IF_ERROR(FindColumns());
        if (table_.are_named) continue;
      }
      DATASETD_RETURN_IF_ERROR(AddRow());
    }
    return std::move(table_);
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return LineError(spec_, line_number_, what);
  }
  std::string Option(absl::string_view name) const {
    return OptionOr(spec_, name, "");
  }
  static bool IsNumber(absl::string_view option) {
    return std::all_of(option.begin(), option.end(), absl::ascii_isdigit);
  }

  absl::Status FindColumns() {
    const std::string path = Option(kPathColumn);
    const std::string label = Option(kLabelColumn);
    table_.are_named = !IsNumber(path) || !IsNumber(label);
    const size_t count = values_.size();
    DATASETD_ASSIGN_OR_RETURN(table_.path_column, FindColumn(kPathColumn, 0));
    table_.has_labels = count > 1 || !label.empty();
    if (!table_.has_labels) return absl::OkStatus();
    // Of two columns the other one.
    const size_t otherwise =
        count == 2 && !path.empty() ? 1 - table_.path_column : 1;
    DATASETD_ASSIGN_OR_RETURN(table_.label_column,
                              FindColumn(kLabelColumn, otherwise));
    if (count == 2 && path.empty() && !label.empty()) {
      table_.path_column = 1 - table_.label_column;
    }
    if (table_.path_column != table_.label_column) return absl::OkStatus();
    return Error(
        "path and label are the same column: give both path_column and "
        "label_column");
  }

  // By its name in the first line, or its number from 0.
  absl::StatusOr<size_t> FindColumn(absl::string_view option,
                                    size_t otherwise) const {
    const std::string name = Option(option);
    if (name.empty()) return otherwise;
    size_t index = 0;
    if (IsNumber(name)) {
      if (absl::SimpleAtoi(name, &index) && index < values_.size()) {
        return index;
      }
      return Error(absl::StrCat("no column ", Escaped(name), " for ", option,
                                ": there are ", values_.size(), ", from 0"));
    }
    for (const bool is_exact : {true, false}) {
      for (size_t i = 0; i < values_.size(); ++i) {
        const absl::string_view value =
            is_exact ? values_[i] : absl::StripAsciiWhitespace(values_[i]);
        if (value == name) return i;
      }
    }
    return Error(absl::StrCat(
        "no column for ", option, " '", Escaped(name), "'; there are: ",
        absl::Utf8SafeCHexEscape(absl::StrJoin(values_, ", "))));
  }

  absl::Status AddRow() {
    if (values_.size() != table_.first.size()) {
      return Error(absl::StrCat(values_.size(), " columns, and line ",
                                table_.first_line, " has ",
                                table_.first.size()));
    }
    Row row = {.line = line_number_, .path = values_[table_.path_column]};
    if (table_.has_labels) {
      row.label =
          std::string(absl::StripAsciiWhitespace(values_[table_.label_column]));
    }
    DATASETD_RETURN_IF_ERROR(memory_.Add(static_cast<int64_t>(
        sizeof(Row) + row.path.size() + row.label.size())));
    table_.rows.push_back(std::move(row));
    return absl::OkStatus();
  }

  const v1::DatasetSpec& spec_;
  ListMemory& memory_;
  Table table_;
  std::vector<std::string> values_;
  int64_t line_number_ = 0;
};

// -- Labels -----------------------------------------------------------------

enum class Cell { kEmpty, kInteger, kDecimal, kText };

Cell KindOf(absl::string_view text) {
  if (text.empty()) return Cell::kEmpty;
  absl::string_view digits = text;
  if (digits[0] == '+' || digits[0] == '-') digits.remove_prefix(1);
  if (!digits.empty() &&
      std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit)) {
    return Cell::kInteger;
  }
  double value = 0;
  // Neither nan and inf, which are words, nor hexadecimal numbers.
  const bool is_decimal =
      digits.find_first_not_of("0123456789.eE+-") == digits.npos &&
      absl::SimpleAtod(text, &value);
  return is_decimal ? Cell::kDecimal : Cell::kText;
}

bool IsNumber(const Row& row) {
  const Cell kind = KindOf(row.label);
  return kind == Cell::kInteger || kind == Cell::kDecimal;
}

double ToDouble(const Row& row) {
  double value = 0;
  (void)absl::SimpleAtod(row.label, &value);
  return value;
}

// Turns the labels of the rows, which all have one, into those of the list.
class LabelReader {
 public:
  // All outlive the reader.
  LabelReader(const v1::DatasetSpec& spec, const WantedClasses* wanted,
              ListMemory* passing, ImageList* list)
      : spec_(spec), wanted_(*wanted), passing_(*passing), list_(*list) {}

  // Leaves rows out whose class is not wanted.
  absl::Status Read(std::vector<Row>& rows) {
    DATASETD_ASSIGN_OR_RETURN(const std::string kind, Kind());
    for (const Row& row : rows) {
      if (row.label.empty()) {
        return Error(row, "is empty: fill it, or remove the line");
      }
    }
    DATASETD_RETURN_IF_ERROR(
        list_.memory->Add(static_cast<int64_t>(rows.size() * sizeof(int64_t))));
    if (kind == "class") return ReadClasses(rows);
    if (kind == "integer") return ReadIntegers(rows);
    if (kind == "float") return ReadFloats(rows);
    return ReadAny(rows);
  }

 private:
  absl::Status Error(const Row& row, absl::string_view what) const {
    return LineError(spec_, row.line,
                     absl::StrCat("label '", Escaped(row.label), "' ", what));
  }

  absl::StatusOr<std::string> Kind() const {
    std::string kind = OptionOr(spec_, kLabelKind, "auto");
    if (std::find(std::begin(kKinds), std::end(kKinds), kind) ==
        std::end(kKinds)) {
      return WrongOption(kLabelKind, kind, absl::StrJoin(kKinds, ", "));
    }
    if (!wanted_.is_given()) return kind;
    if (kind == "auto" || kind == "class") return "class";
    return absl::InvalidArgumentError(absl::StrCat(
        "class_names: labels are classes if their names are given, and option ",
        kLabelKind, " is ", kind));
  }

  // The kind that all labels have.
  absl::Status ReadAny(std::vector<Row>& rows) {
    size_t num_integers = 0;
    size_t num_decimals = 0;
    bool has_fraction = false;
    std::map<Cell, const Row*> first;
    for (const Row& row : rows) {
      const Cell kind = KindOf(row.label);
      first.emplace(kind, &row);
      num_integers += kind == Cell::kInteger ? 1 : 0;
      if (kind != Cell::kDecimal) continue;
      ++num_decimals;
      const double value = ToDouble(row);
      has_fraction |= value != std::floor(value);
    }
    const size_t num_numbers = num_integers + num_decimals;
    if (num_numbers == 0) return ReadClasses(rows);
    if (num_numbers < rows.size()) {
      if (2 * num_numbers >= rows.size()) {
        return Error(
            *first[Cell::kText],
            absl::StrCat("is no number, as most of the others are: correct it, "
                         "or remove the line; option ",
                         kLabelKind, "=class makes every label a class name"));
      }
      const Row& number =
          *first[num_integers > 0 ? Cell::kInteger : Cell::kDecimal];
      return Error(
          number,
          absl::StrCat("is a number, and most of the others are text: "
                       "correct it, or remove the line; option ",
                       kLabelKind, "=class makes every label a class name"));
    }
    if (num_decimals == 0) return ReadIntegers(rows);
    if (num_integers > 0 && !has_fraction) {
      const bool are_mostly_integers = num_integers >= num_decimals;
      return Error(
          *first[are_mostly_integers ? Cell::kDecimal : Cell::kInteger],
          absl::StrCat(are_mostly_integers
                           ? "has a decimal point, and others are integers"
                           : "is an integer, and others have a decimal point",
                       ": option ", kLabelKind, "=integer makes all integers, ",
                       kLabelKind, "=float all float32"));
    }
    if (num_integers > 0) {
      const auto fraction =
          std::find_if(rows.begin(), rows.end(), [](const Row& row) {
            return ToDouble(row) != std::floor(ToDouble(row));
          });
      AddNote(absl::StrCat("labels are float32, as '", fraction->label,
                           "' in line ", fraction->line, " is no integer"),
              /*is_warning=*/false, list_.notes);
    }
    return ReadFloats(rows);
  }

  absl::Status ReadIntegers(const std::vector<Row>& rows) {
    const Row* padded = nullptr;
    for (const Row& row : rows) {
      absl::string_view text = row.label;
      std::string whole;
      if (KindOf(text) == Cell::kDecimal &&
          ToDouble(row) == std::floor(ToDouble(row)) &&
          std::abs(ToDouble(row)) < 1e15) {
        whole = absl::StrCat(static_cast<int64_t>(ToDouble(row)));
        text = whole;
      }
      if (KindOf(text) != Cell::kInteger) {
        return Error(row, "is no integer: correct it, or remove the line");
      }
      if (!absl::SimpleAtoi(text, &list_.labels.emplace_back())) {
        return Error(
            row, absl::StrCat("does not fit into int64; option ", kLabelKind,
                              "=class makes every label a class "
                              "name"));
      }
      absl::string_view digits = row.label;
      if (digits[0] == '+' || digits[0] == '-') digits.remove_prefix(1);
      const bool is_padded = digits.size() > 1 && digits[0] == '0' &&
                             absl::ascii_isdigit(digits[1]);
      if (padded == nullptr && is_padded) padded = &row;
    }
    if (padded == nullptr) return absl::OkStatus();
    AddNote(absl::StrCat("labels are integers, without their leading zeros, as "
                         "'",
                         padded->label, "' in line ", padded->line, "; option ",
                         kLabelKind, "=class keeps them as class names"),
            /*is_warning=*/false, list_.notes);
    return absl::OkStatus();
  }

  absl::Status ReadFloats(const std::vector<Row>& rows) {
    DATASETD_RETURN_IF_ERROR(
        passing_.Add(static_cast<int64_t>(rows.size() * sizeof(double))));
    std::vector<double> values;
    for (const Row& row : rows) {
      if (!IsNumber(row)) {
        return Error(row, "is no number: correct it, or remove the line");
      }
      values.push_back(ToDouble(row));
      if (std::abs(values.back()) > std::numeric_limits<float>::max()) {
        return Error(row, "does not fit into float32");
      }
      list_.targets.push_back(static_cast<float>(values.back()));
    }
    std::sort(values.begin(), values.end());
    for (size_t i = 1; i < values.size(); ++i) {
      if (values[i] == values[i - 1] ||
          static_cast<float>(values[i]) != static_cast<float>(values[i - 1])) {
        continue;
      }
      const auto text_of = [&](double value) -> absl::string_view {
        return std::find_if(
                   rows.begin(), rows.end(),
                   [&](const Row& row) { return ToDouble(row) == value; })
            ->label;
      };
      AddNote(
          absl::StrCat("labels are float32, of 7 digits, which makes '",
                       text_of(values[i - 1]), "' and '", text_of(values[i]),
                       "' equal: subtract what the labels have in common, "
                       "or scale them"),
          /*is_warning=*/true, list_.notes);
      break;
    }
    return absl::OkStatus();
  }

  absl::Status ReadClasses(std::vector<Row>& rows) {
    std::map<std::string, std::optional<int64_t>> classes;
    for (Row& row : rows) {
      row.label = PrintableUtf8(row.label);
      const auto [entry, is_new] = classes.try_emplace(row.label);
      if (!is_new) continue;
      DATASETD_RETURN_IF_ERROR(list_.memory->Add(
          kMapNodeBytes +
          2 * static_cast<int64_t>(sizeof(std::string) + row.label.size())));
      if (!wanted_.is_given()) continue;
      DATASETD_ASSIGN_OR_RETURN(
          entry->second,
          wanted_.Find(row.label,
                       absl::StrCat(spec_.path(), ": line ", row.line)));
    }
    std::vector<std::string> others;
    for (auto& [name, index] : classes) {
      if (!wanted_.is_given()) {
        index = static_cast<int64_t>(list_.class_names.size());
        list_.class_names.push_back(name);
      } else if (!index.has_value()) {
        others.push_back(name);
      }
    }
    if (wanted_.is_given()) list_.class_names = wanted_.names();
    const size_t num_rows = rows.size();
    std::erase_if(rows, [&](const Row& row) {
      return !classes.at(row.label).has_value();
    });
    for (const Row& row : rows) {
      list_.labels.push_back(*classes.at(row.label));
    }
    AddClassNotes(static_cast<int64_t>(num_rows - rows.size()), others,
                  list_.class_names, list_.labels, wanted_.is_given(),
                  list_.notes);
    return absl::OkStatus();
  }

  const v1::DatasetSpec& spec_;
  const WantedClasses& wanted_;
  ListMemory& passing_;
  ImageList& list_;
};

// -- The header -------------------------------------------------------------

class ImagePaths {
 public:
  ImagePaths(const v1::DatasetSpec& spec, const FileSystem& files)
      : directory_(spec.path().substr(0, spec.path().rfind('/'))),
        files_(files) {}

  // Nothing is known of a file that cannot be opened but its path: a bad
  // sample, found when it is read.
  absl::StatusOr<FileInfo> Find(const std::string& path, bool* exists,
                                bool* is_missing = nullptr) const {
    FileInfo image;
    image.path =
        absl::StartsWith(path, "/") ? path : JoinPath(directory_, path);
    const auto info = files_.Stat(image.path);
    if (!info.ok() && !IsOfPath(info.status())) return info.status();
    *exists = info.ok() && !info->is_directory;
    if (is_missing != nullptr) *is_missing = absl::IsNotFound(info.status());
    if (info.ok()) {
      image.size_bytes = info->size_bytes;
      image.mtime_nanoseconds = info->mtime_nanoseconds;
    }
    return image;
  }

 private:
  const std::string directory_;
  const FileSystem& files_;
};

// True if the first line begins as the header of a list of images.
bool HasKnownHeader(const Table& table) {
  const std::string word =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(table.first.front()));
  return word == "path" || word == "file" || word == "filename" ||
         word == "image";
}

// Whether the first row is a header, though no option names a column of it.
// INVALID_ARGUMENT if that is unclear.
absl::StatusOr<bool> IsHeader(const v1::DatasetSpec& spec, const Table& table,
                              const ImagePaths& paths) {
  // Rows that are looked at to find one whose file is there.
  constexpr size_t kMaxLooks = 100;
  const Row& first = table.rows.front();
  if (HasKnownHeader(table)) return true;
  bool exists = false;
  DATASETD_RETURN_IF_ERROR(paths.Find(first.path, &exists).status());
  if (exists || HasImageExtension(first.path)) return false;
  const auto others = absl::MakeConstSpan(table.rows).subspan(1);
  const bool have_numbers = std::any_of(others.begin(), others.end(), IsNumber);
  if (!IsNumber(first) && have_numbers) return true;
  const bool have_extensions =
      std::any_of(others.begin(), others.end(),
                  [](const Row& row) { return HasImageExtension(row.path); });
  if (!have_numbers && have_extensions) return true;
  for (size_t i = 0; i < std::min(others.size(), kMaxLooks) && !exists; ++i) {
    DATASETD_RETURN_IF_ERROR(paths.Find(others[i].path, &exists).status());
  }
  // No path of it is right: the error is of the second line.
  if (!exists && !have_extensions) return true;
  return LineError(
      spec, first.line,
      absl::StrCat("no file '", Escaped(first.path),
                   "': correct the path, or, if the line is a header, name its "
                   "columns by the options path_column and label_column"));
}

// True for what a column of labels is usually called.
bool IsLabelName(absl::string_view name) {
  constexpr absl::string_view kNames[] = {"label",  "labels", "class",
                                          "target", "y",      "diagnosis"};
  const std::string lower =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(name));
  return std::find(std::begin(kNames), std::end(kNames), lower) !=
         std::end(kNames);
}

void NoteColumns(const Table& table, bool has_header, bool is_chosen,
                 std::vector<LoadNote>& notes) {
  if (has_header && !table.are_named && !HasKnownHeader(table)) {
    AddNote(absl::StrCat("line 1 is the header: ", QuotedNames(table.first)),
            /*is_warning=*/false, notes);
  }
  if (!table.has_labels) {
    AddNote("there is no column of labels", /*is_warning=*/false, notes);
  }
  std::vector<std::string> unread;
  bool has_other_label = false;
  for (size_t i = 0; i < table.first.size(); ++i) {
    if (i == table.path_column ||
        (table.has_labels && i == table.label_column)) {
      continue;
    }
    unread.push_back(has_header ? table.first[i] : absl::StrCat(i));
    has_other_label |= !is_chosen && IsLabelName(unread.back());
  }
  if (unread.empty()) return;
  std::string text =
      absl::StrCat("left out: ", unread.size() == 1 ? "column " : "columns ",
                   QuotedNames(unread));
  if (has_other_label) {
    absl::StrAppend(&text, "; labels are those of the second column, '",
                    table.first[table.label_column],
                    "': option label_column names another");
  }
  AddNote(text, has_other_label, notes);
}

// The error of a list without an image that can be read.
absl::Status WithColumns(const absl::Status& status, const Table& table,
                         bool has_header) {
  const auto name = [&](size_t column) {
    return has_header ? absl::StrCat("'", Escaped(table.first[column]), "'")
                      : absl::StrCat(column);
  };
  return absl::Status(
      status.code(),
      absl::StrCat(
          status.message(), "; paths are in column ", name(table.path_column),
          table.has_labels
              ? absl::StrCat(", labels in column ", name(table.label_column))
              : "",
          ": the options path_column and label_column name others"));
}

absl::StatusOr<std::string> ReadText(const v1::DatasetSpec& spec,
                                     const RandomAccessFile& file,
                                     ListMemory& memory) {
  const int64_t size_bytes = file.info().size_bytes;
  if (size_bytes > kMaxCsvBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.path(), ": ", size_bytes,
                     " bytes, and a CSV file may have ", kMaxCsvBytes));
  }
  DATASETD_RETURN_IF_ERROR(memory.Add(size_bytes));
  std::string text(static_cast<size_t>(size_bytes), '\0');
  DATASETD_RETURN_IF_ERROR(ReadExactly(
      file, 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenImageCsvReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  std::vector<absl::string_view> known(std::begin(kImageOptionNames),
                                       std::end(kImageOptionNames));
  known.insert(known.end(), {kLabelColumn, kLabelKind, kPathColumn});
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, known));
  DATASETD_ASSIGN_OR_RETURN(const ImageOptions options,
                            ParseImageOptions(spec));
  DATASETD_ASSIGN_OR_RETURN(const auto file, context.files.Open(spec.path()));
  // Pays for the text and its rows, which go when the source is open.
  ListMemory passing(context.account);
  DATASETD_ASSIGN_OR_RETURN(const std::string text,
                            ReadText(spec, *file, passing));
  DATASETD_ASSIGN_OR_RETURN(Table table, CsvParser(spec, &passing).Parse(text));
  const ImagePaths paths(spec, context.files);
  bool has_header = table.are_named;
  if (!has_header && !table.rows.empty()) {
    DATASETD_ASSIGN_OR_RETURN(has_header, IsHeader(spec, table, paths));
    if (has_header) table.rows.erase(table.rows.begin());
  }
  const bool is_chosen = !OptionOr(spec, kPathColumn, "").empty() ||
                         !OptionOr(spec, kLabelColumn, "").empty();
  if (!has_header && !is_chosen && table.first.size() > 2) {
    return LineError(
        spec, table.first_line,
        absl::StrCat(table.first.size(),
                     " columns and no header: number them by the options "
                     "path_column=0 and label_column=1"));
  }
  if (table.rows.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.path(), has_header ? ": holds only a header" : "",
                     ": zero samples, expected lines of a path and a label"));
  }
  ImageList list;
  list.memory = std::make_unique<ListMemory>(context.account);
  list.other_files.push_back(file->info());
  NoteColumns(table, has_header, is_chosen, list.notes);
  const WantedClasses wanted(spec);
  if (table.has_labels) {
    DATASETD_RETURN_IF_ERROR(
        LabelReader(spec, &wanted, &passing, &list).Read(table.rows));
  } else if (wanted.is_given() || FindOption(spec, kLabelKind) != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.path(), ": has no column of labels, and ",
                     wanted.is_given() ? "class_names were given"
                                       : "option label_kind is of labels"));
  }
  for (const Row& row : table.rows) {
    if (row.path.empty()) {
      return LineError(spec, row.line, "the path is empty");
    }
    bool exists = false;
    bool is_missing = false;
    DATASETD_ASSIGN_OR_RETURN(FileInfo image,
                              paths.Find(row.path, &exists, &is_missing));
    // Skipping a first line that is no sample is no cure.
    if (is_missing && !has_header && row.line == table.first_line &&
        spec.bad_samples() <= v1::BAD_SAMPLE_POLICY_FAIL) {
      return absl::NotFoundError(absl::StrCat(
          image.path, ": no such file, as line ", row.line, " of ", spec.path(),
          " says: correct the path, or, if the line is a header, name its "
          "columns by the options path_column and label_column"));
    }
    DATASETD_RETURN_IF_ERROR(list.memory->Add(ListedBytes(image)));
    list.images.push_back(std::move(image));
  }
  auto reader =
      OpenImageList(std::move(list), options, context.files, context.account);
  if (absl::IsNotFound(reader.status()) && !table.are_named) {
    return WithColumns(reader.status(), table, has_header);
  }
  return reader;
}

}  // namespace datasetd
