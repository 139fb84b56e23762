#include "server/readers/npy_header.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxDimensions = 32;
constexpr int64_t kMaxHeaderBytes = 64 << 10;

struct Descr {
  absl::string_view name;
  Dtype dtype;
  bool is_bool;
};
constexpr Descr kDescrs[] = {
    {"|u1", Dtype::kUint8, false},   {"|b1", Dtype::kUint8, true},
    {"<i2", Dtype::kInt16, false},   {"<i4", Dtype::kInt32, false},
    {"<i8", Dtype::kInt64, false},   {"<f2", Dtype::kFloat16, false},
    {"<f4", Dtype::kFloat32, false}, {"<f8", Dtype::kFloat64, false},
    {"|i1", Dtype::kInt8, false},    {"<u2", Dtype::kUint16, false},
    {"<u4", Dtype::kUint32, false},
};

// A parser for a dict of three keys, without recursion.
class DictParser {
 public:
  DictParser(absl::string_view text, NpyArray array)
      : text_(text), array_(array) {}

  absl::StatusOr<NpyHeader> Parse() {
    std::optional<std::string> descr;
    std::optional<bool> is_fortran;
    std::optional<std::vector<int64_t>> shape;
    DATASETD_RETURN_IF_ERROR(Expect('{'));
    while (!Accept('}')) {
      DATASETD_ASSIGN_OR_RETURN(const std::string key, ParseString());
      DATASETD_RETURN_IF_ERROR(Expect(':'));
      if (key == "descr" && !descr.has_value()) {
        DATASETD_ASSIGN_OR_RETURN(descr, ParseDescr());
      } else if (key == "fortran_order" && !is_fortran.has_value()) {
        DATASETD_ASSIGN_OR_RETURN(is_fortran, ParseBool());
      } else if (key == "shape" && !shape.has_value()) {
        DATASETD_ASSIGN_OR_RETURN(shape, ParseShape());
      } else {
        return Error("found key '", absl::CHexEscape(key),
                     "', expected 'descr', 'fortran_order' and 'shape', each "
                     "once");
      }
      if (!Accept(',')) {
        DATASETD_RETURN_IF_ERROR(Expect('}'));
        break;
      }
    }
    SkipSpace();
    if (position_ != text_.size()) return Unexpected("the end");
    if (!descr.has_value() || !is_fortran.has_value() || !shape.has_value()) {
      return Error("one of 'descr', 'fortran_order', 'shape' is missing");
    }
    if (*is_fortran) {
      return absl::InvalidArgumentError(
          "the array is in Fortran order, expected C order; save "
          "numpy.ascontiguousarray(array)");
    }
    return MakeHeader(*descr, *std::move(shape), array_);
  }

 private:
  static absl::StatusOr<NpyHeader> MakeHeader(const std::string& descr,
                                              std::vector<int64_t> shape,
                                              NpyArray array) {
    NpyHeader header;
    const auto known =
        std::find_if(std::begin(kDescrs), std::end(kDescrs),
                     [&](const Descr& d) { return d.name == descr; });
    if (known == std::end(kDescrs)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "dtype '", absl::CHexEscape(descr), "' is not supported",
          absl::StartsWith(descr, ">")
              ? " (big-endian; save array.astype(array.dtype.newbyteorder("
                "'<')))"
          : descr == "|O"
              ? " (Python objects, which are not read; push arrays of several "
                "lengths from Python: push(name, list(array), ragged=True))"
              : "",
          ", expected one of ",
          absl::StrJoin(kDescrs, " ", [](std::string* out, const Descr& d) {
            absl::StrAppend(out, d.name);
          })));
    }
    header.dtype = known->dtype;
    header.is_bool = known->is_bool;
    const std::string shape_text = ShapeText(shape);
    if (shape.empty() && array == NpyArray::kSamples) {
      return absl::InvalidArgumentError(
          "shape () has no dimension, expected the samples' first");
    }
    header.data_bytes = DtypeSizeBytes(header.dtype);
    for (int64_t extent : shape) {
      if (extent == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("shape ", shape_text, " has zero ",
                         shape[0] == 0 && array == NpyArray::kSamples
                             ? "samples"
                             : "elements a sample"));
      }
      if (__builtin_mul_overflow(header.data_bytes, extent,
                                 &header.data_bytes)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "shape ", shape_text, " of ", descr, " overflows 64 bits"));
      }
    }
    header.shape = std::move(shape);
    return header;
  }

  // Parses a quoted string without escapes, quotes or line breaks.
  absl::StatusOr<std::string> ParseString() {
    SkipSpace();
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Unexpected("a quoted string");
    const size_t begin = position_ + 1;
    const size_t end = text_.find(quote, begin);
    const absl::string_view value =
        text_.substr(begin, end == absl::string_view::npos ? 0 : end - begin);
    if (end == absl::string_view::npos ||
        value.find_first_of("\\\n\r") != absl::string_view::npos) {
      return Error("a string does not end, or holds an escape");
    }
    position_ = end + 1;
    return std::string(value);
  }

  absl::StatusOr<std::string> ParseDescr() {
    SkipSpace();
    if (Peek() == '[' || Peek() == '(') {
      return Error(
          "descr is ",
          absl::StrReplaceAll(absl::CHexEscape(text_.substr(position_, 40)),
                              {{"\\'", "'"}}),
          "...: structured dtypes are not supported; save one .npy "
          "per field");
    }
    return ParseString();
  }

  absl::StatusOr<bool> ParseBool() {
    SkipSpace();
    for (const bool value : {false, true}) {
      const absl::string_view word = value ? "True" : "False";
      if (absl::StartsWith(text_.substr(position_), word)) {
        position_ += word.size();
        return value;
      }
    }
    return Unexpected("True or False");
  }

  absl::StatusOr<std::vector<int64_t>> ParseShape() {
    std::vector<int64_t> shape;
    bool has_comma = false;
    DATASETD_RETURN_IF_ERROR(Expect('('));
    while (!Accept(')')) {
      DATASETD_ASSIGN_OR_RETURN(const int64_t extent, ParseExtent());
      shape.push_back(extent);
      if (shape.size() > kMaxDimensions) {
        return Error("more than ", kMaxDimensions, " dimensions");
      }
      if (Accept(',')) {
        has_comma = true;
        continue;
      }
      DATASETD_RETURN_IF_ERROR(Expect(')'));
      break;
    }
    if (shape.size() == 1 && !has_comma) {
      return Error("shape is a number in brackets, expected a tuple");
    }
    return shape;
  }

  absl::StatusOr<int64_t> ParseExtent() {
    SkipSpace();
    const size_t begin = position_;
    int64_t value = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, int64_t{Peek() - '0'}, &value)) {
        return Error("an extent overflows 64 bits");
      }
      ++position_;
    }
    if (position_ == begin) return Unexpected("a whole number");
    return value;
  }

  // Returns NUL at the end.
  char Peek() const {
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  void SkipSpace() {
    while (Peek() == ' ' || Peek() == '\n' || Peek() == '\t') ++position_;
  }
  bool Accept(char c) {
    SkipSpace();
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  absl::Status Expect(char c) {
    if (Accept(c)) return absl::OkStatus();
    return Unexpected(absl::StrCat("'", absl::string_view(&c, 1), "'"));
  }
  absl::Status Unexpected(absl::string_view expected) const {
    const absl::string_view found = text_.substr(position_, 1);
    return Error("found ",
                 found.empty()
                     ? "the end"
                     : absl::StrCat("'", absl::CHexEscape(found), "'"),
                 ", expected ", expected);
  }
  template <typename... Parts>
  absl::Status Error(const Parts&... parts) const {
    return absl::InvalidArgumentError(
        absl::StrCat("header offset ", position_, ": ", parts...));
  }

  const absl::string_view text_;
  const NpyArray array_;
  size_t position_ = 0;
};

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyDict(absl::string_view text, NpyArray array) {
  return DictParser(text, array).Parse();
}

absl::StatusOr<NpyHeader> ReadNpyHeader(const RandomAccessFile& file) {
  return ReadNpyHeader(file.info().path, file.info().size_bytes,
                       [&file](int64_t offset, absl::Span<uint8_t> buffer) {
                         return ReadExactly(file, offset, buffer);
                       });
}

absl::StatusOr<NpyHeader> ParseNpy(absl::Span<const uint8_t> bytes,
                                   NpyArray array) {
  const auto size = static_cast<int64_t>(bytes.size());
  const auto read = [&](int64_t offset, absl::Span<uint8_t> buffer) {
    if (offset + static_cast<int64_t>(buffer.size()) > size) {
      return absl::DataLossError(
          absl::StrCat(".npy: ends after ", size, " bytes"));
    }
    std::copy_n(bytes.begin() + offset, buffer.size(), buffer.begin());
    return absl::OkStatus();
  };
  return ReadNpyHeader(".npy", size, read, array);
}

absl::StatusOr<NpyHeader> ReadNpyHeader(const std::string& path, int64_t size,
                                        const NpyRead& read, NpyArray array) {
  if (size == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": empty, expected a .npy header"));
  }
  uint8_t prefix[12] = {};  // magic, version, length of the dict
  DATASETD_RETURN_IF_ERROR(read(0, absl::MakeSpan(prefix, 10)));
  const absl::string_view magic(reinterpret_cast<const char*>(prefix), 6);
  if (magic != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": offset 0: magic is '", absl::CHexEscape(magic),
                     "', expected '", absl::CHexEscape(kMagic), "' (.npy)"));
  }
  const int major = prefix[6];
  const int minor = prefix[7];
  if (major < 1 || major > 3 || minor != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": offset 6: format version ", major, ".", minor,
                     ", expected 1.0, 2.0 or 3.0"));
  }
  int64_t length = prefix[8] | prefix[9] << 8;
  int64_t dict_offset = 10;
  if (major > 1) {
    DATASETD_RETURN_IF_ERROR(read(10, absl::MakeSpan(prefix + 10, 2)));
    length |= int64_t{prefix[10]} << 16 | int64_t{prefix[11]} << 24;
    dict_offset = 12;
  }
  if (length > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": offset 8: a header of ", length,
                     " bytes, expected at most ", kMaxHeaderBytes));
  }
  if (length > size - dict_offset) {
    return absl::DataLossError(absl::StrCat(path, ": offset 8: a header of ",
                                            length, " bytes, found ",
                                            size - dict_offset));
  }
  std::string dict(static_cast<size_t>(length), '\0');
  DATASETD_RETURN_IF_ERROR(read(
      dict_offset,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(dict.data()), dict.size())));
  auto header = ParseNpyDict(dict, array);
  if (!header.ok()) return WithPath(path, header.status());
  header->data_offset = dict_offset + length;
  if (size - header->data_offset != header->data_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", size - header->data_offset,
                     " bytes after the header at "
                     "offset ",
                     header->data_offset, ", expected ", header->data_bytes,
                     " as the header declares"));
  }
  return header;
}

}  // namespace datasetd
