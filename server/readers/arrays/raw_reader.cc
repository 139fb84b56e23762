#include "server/readers/arrays/raw_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/readers/option_values.h"
#include "server/readers/read_buffers.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr int64_t kReadBytes = 512 << 10;
// A whole record is buffered.
constexpr int64_t kMaxRecordBytes = 256 << 20;

struct RawFormat {
  int64_t header_bytes = 0;
  int64_t label_bytes = 0;
  bool is_label_last = false;
  bool is_chw = false;
  FieldSpec data;

  int64_t record_bytes() const { return label_bytes + data.sample_bytes(); }
};

// Converts [C, H, W] to [H, W, C].
void Interleave(const FieldSpec& field, const uint8_t* planes,
                uint8_t* pixels) {
  const int64_t channels = field.shape[2];
  const int64_t plane = field.shape[0] * field.shape[1];
  const size_t size = static_cast<size_t>(DtypeSizeBytes(field.dtype));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < plane; ++i) {
      memcpy(pixels + (i * channels + c) * size,
             planes + (c * plane + i) * size, size);
    }
  }
}

class RawReader : public Reader {
 public:
  RawReader(RawFormat format, SourceInfo info,
            std::unique_ptr<RandomAccessFile> file)
      : format_(std::move(format)),
        info_(std::move(info)),
        file_(std::move(file)) {}

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, first, count, fields));
    const int64_t record_bytes = format_.record_bytes();
    const int64_t at_once =
        std::min(count, std::max<int64_t>(1, kReadBytes / record_bytes));
    std::vector<uint8_t> buffer(static_cast<size_t>(at_once * record_bytes));
    for (int64_t done = 0; done < count;) {
      const int64_t block = std::min(at_once, count - done);
      DATASETD_RETURN_IF_ERROR(ReadExactly(
          *file_, format_.header_bytes + (first + done) * record_bytes,
          absl::MakeSpan(buffer).subspan(
              0, static_cast<size_t>(block * record_bytes))));
      for (int64_t i = 0; i < block; ++i, ++done) {
        DATASETD_RETURN_IF_ERROR(Split(buffer.data() + i * record_bytes,
                                       first + done, done, fields));
      }
    }
    return absl::OkStatus();
  }

  SampleLocation Locate(int64_t index) const override {
    return {.path = file_->info().path,
            .offset = format_.header_bytes + index * format_.record_bytes(),
            .size_bytes = format_.record_bytes()};
  }

 private:
  // Splits record `index` into row `row` of the fields.
  absl::Status Split(const uint8_t* record, int64_t index, int64_t row,
                     absl::Span<const absl::Span<uint8_t>> fields) const {
    const int64_t data_bytes = format_.data.sample_bytes();
    const uint8_t* const label =
        format_.is_label_last ? record + data_bytes : record;
    const uint8_t* const data =
        format_.is_label_last ? record : record + format_.label_bytes;
    uint8_t* const to = fields[0].data() + row * data_bytes;
    if (format_.is_chw) {
      Interleave(format_.data, data, to);
    } else {
      memcpy(to, data, static_cast<size_t>(data_bytes));
    }
    if (format_.label_bytes == 1) fields[1][row] = *label;
    if (format_.label_bytes < 2) return absl::OkStatus();
    uint64_t value = 0;
    for (int64_t i = format_.label_bytes; i-- > 0;)
      value = value << 8 | label[i];
    if (value > std::numeric_limits<int64_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_->info().path, ": record ", index,
                       ": the label is ", value, ", expected less than 2^63"));
    }
    memcpy(fields[1].data() + row * sizeof(value), &value, sizeof(value));
    return absl::OkStatus();
  }

  const RawFormat format_;
  const SourceInfo info_;
  const std::unique_ptr<RandomAccessFile> file_;
};

absl::StatusOr<bool> Choose(const v1::DatasetSpec& spec,
                            absl::string_view option, absl::string_view no,
                            absl::string_view yes) {
  const std::string value = OptionOr(spec, option, no);
  if (value == no) return false;
  if (value == yes) return true;
  return WrongOption(option, value, no, " or ", yes);
}

absl::StatusOr<FieldSpec> MakeDataField(const v1::DatasetSpec& spec,
                                        bool is_chw) {
  FieldSpec field;
  DATASETD_ASSIGN_OR_RETURN(
      field.dtype,
      ParseDtype(OptionOr(spec, "dtype", "uint8"), "option dtype"));
  DATASETD_ASSIGN_OR_RETURN(
      const std::string shape,
      RequiredOption(spec, "shape", "a record's, as 32x32x3"));
  DATASETD_ASSIGN_OR_RETURN(field.shape, ParseShape(shape, "option shape"));
  if (is_chw) {
    if (field.shape.size() != 3 || field.shape[0] > kMaxImageChannels) {
      return absl::InvalidArgumentError(absl::StrCat(
          "option shape is ", shape, ", expected CxHxW with C of 1 to ",
          kMaxImageChannels, " for layout=chw"));
    }
    std::rotate(field.shape.begin(), field.shape.begin() + 1,
                field.shape.end());
  }
  if (field.dtype == Dtype::kUint8 || field.dtype == Dtype::kFloat32) {
    if (field.shape.size() == 2) field.shape.push_back(1);
    field.is_image =
        field.shape.size() == 3 && field.shape[2] <= kMaxImageChannels;
  }
  field.name = OptionOr(spec, "name", field.is_image ? "image" : "data");
  if (!IsFieldName(field.name) || field.name == "label") {
    return WrongOption(
        "name", field.name,
        "a letter or _, then letters, digits or _, and not label");
  }
  if (field.sample_bytes() <= kMaxRecordBytes) return field;
  return absl::InvalidArgumentError(
      absl::StrCat("option shape is ", shape, ": ", field.sample_bytes(),
                   " bytes a record, expected at most ", kMaxRecordBytes));
}

absl::StatusOr<RawFormat> ParseFormat(const v1::DatasetSpec& spec) {
  RawFormat format;
  DATASETD_ASSIGN_OR_RETURN(format.is_chw,
                            Choose(spec, "layout", "hwc", "chw"));
  DATASETD_ASSIGN_OR_RETURN(format.is_label_last,
                            Choose(spec, "label", "first", "last"));
  DATASETD_ASSIGN_OR_RETURN(format.data, MakeDataField(spec, format.is_chw));
  DATASETD_ASSIGN_OR_RETURN(format.header_bytes,
                            IntOption(spec, "header_bytes", 0, 0, 1 << 30));
  DATASETD_ASSIGN_OR_RETURN(format.label_bytes,
                            IntOption(spec, "label_bytes", 0, 0, 8));
  const int64_t size = format.label_bytes;
  if ((size & (size - 1)) == 0) return format;
  return absl::InvalidArgumentError(absl::StrCat("option label_bytes is ", size,
                                                 ", expected 0, 1, 2, 4 or 8"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenRawReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  DATASETD_RETURN_IF_ERROR(
      CheckOptions(spec, {"dtype", "header_bytes", "label", "label_bytes",
                          "layout", "name", "shape"}));
  DATASETD_ASSIGN_OR_RETURN(RawFormat format, ParseFormat(spec));
  DATASETD_ASSIGN_OR_RETURN(
      auto file,
      OpenSourceFile(context.files, spec.path(), "a file of records"));
  const FileInfo& file_info = file->info();
  const int64_t data_bytes = file_info.size_bytes - format.header_bytes;
  const int64_t record_bytes = format.record_bytes();
  if (data_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_info.path, ": ", file_info.size_bytes,
                     " bytes: zero samples after the ", format.header_bytes,
                     " of option header_bytes"));
  }
  if (data_bytes % record_bytes != 0) {
    return absl::DataLossError(absl::StrCat(
        file_info.path, ": ", data_bytes,
        " bytes of records, expected a "
        "multiple of a record's ",
        record_bytes, "; the last one begins at offset ",
        format.header_bytes + data_bytes / record_bytes * record_bytes,
        " and is cut off, or the options are not those of this file"));
  }
  SourceInfo info;
  info.num_samples = data_bytes / record_bytes;
  info.fields.push_back(format.data);
  if (format.label_bytes > 0) {
    info.fields.push_back(
        {.name = "label",
         .dtype = format.label_bytes == 1 ? Dtype::kUint8 : Dtype::kInt64,
         .shape = {}});
  }
  info.files.push_back(file_info);
  return std::make_unique<RawReader>(std::move(format), std::move(info),
                                     std::move(file));
}

}  // namespace datasetd
