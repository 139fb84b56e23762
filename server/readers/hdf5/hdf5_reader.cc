#include "server/readers/hdf5/hdf5_reader.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "server/readers/arrays/npy_fields.h"
#include "server/readers/field_names.h"
#include "server/readers/hdf5/hdf5_process.h"
#include "server/readers/npy_header.h"
#include "server/readers/option_values.h"
#include "server/readers/read_buffers.h"
#include "server/readers/source_file.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr size_t kMaxFields = 64;
constexpr int64_t kMaxExpansion = 1032;
constexpr int64_t kRequestBytes = 4 << 20;

class Hdf5Reader : public Reader {
 public:
  Hdf5Reader(SourceInfo info, std::unique_ptr<Hdf5Process> process)
      : info_(std::move(info)), process_(std::move(process)) {}

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, position_, count, fields));
    for (size_t f = 0; f < fields.size(); ++f) {
      const int64_t row_bytes = info_.fields[f].sample_bytes();
      const int64_t at_once = std::max<int64_t>(1, kRequestBytes / row_bytes);
      for (int64_t done = 0; done < count;) {
        const int64_t rows = std::min(at_once, count - done);
        DATASETD_RETURN_IF_ERROR(process_->ReadRows(
            f, static_cast<uint64_t>(position_ + done),
            static_cast<uint64_t>(rows),
            fields[f].subspan(static_cast<size_t>(done * row_bytes),
                              static_cast<size_t>(rows * row_bytes))));
        done += rows;
      }
    }
    position_ += count;
    return absl::OkStatus();
  }

 private:
  const SourceInfo info_;
  const std::unique_ptr<Hdf5Process> process_;
  int64_t position_ = 0;
};

// Parses a line of the worker: name, dtype, extents. The worker is not trusted.
absl::StatusOr<NpyHeader> ParseLine(const std::string& path,
                                    absl::string_view line, std::string* name) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  NpyHeader header;
  if (words.size() < 3) {
    return absl::InternalError(
        absl::StrCat(path, ": datasetd-hdf5 said '", std::string(line), "'"));
  }
  *name = words[0];
  const std::string where = absl::StrCat(path, ": field '", *name, "'");
  DATASETD_ASSIGN_OR_RETURN(header.dtype, ParseDtype(words[1], where));
  header.data_bytes = DtypeSizeBytes(header.dtype);
  for (size_t i = 2; i < words.size(); ++i) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(words[i], &extent) || extent < 1 ||
        __builtin_mul_overflow(header.data_bytes, extent, &header.data_bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " declares more elements than any memory holds"));
    }
    header.shape.push_back(extent);
  }
  return header;
}

absl::StatusOr<SourceInfo> ParseInfo(const FileInfo& file,
                                     const std::string& text,
                                     ImageChoices& choices) {
  SourceInfo info;
  info.files.push_back(file);
  int64_t total_bytes = 0;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::string name;
    DATASETD_ASSIGN_OR_RETURN(const NpyHeader header,
                              ParseLine(file.path, line, &name));
    const std::string where = absl::StrCat(file.path, ": field '", name, "'");
    if (__builtin_add_overflow(total_bytes, header.data_bytes, &total_bytes) ||
        total_bytes / kMaxExpansion > file.size_bytes) {
      return absl::DataLossError(absl::StrCat(
          where, " declares ", header.data_bytes,
          " bytes, more than a file of ", file.size_bytes, " can hold"));
    }
    if (info.fields.empty()) info.num_samples = header.shape[0];
    if (header.shape[0] != info.num_samples) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, " holds ", header.shape[0], " samples, and field '",
          info.fields[0].name, "' ", info.num_samples,
          "; choose datasets of one length with option fields"));
    }
    DATASETD_ASSIGN_OR_RETURN(FieldSpec field,
                              MakeNpyField(where, name, header, choices));
    info.fields.push_back(std::move(field));
  }
  if (info.fields.empty() || info.fields.size() > kMaxFields) {
    return absl::InternalError(absl::StrCat(file.path, ": datasetd-hdf5 named ",
                                            info.fields.size(), " fields"));
  }
  DATASETD_RETURN_IF_ERROR(CheckAllTaken(choices, file.path));
  return info;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenHdf5Reader(
    const SourceSpec& spec, const FileSystem& files) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  DATASETD_RETURN_IF_ERROR(
      CheckOptions(spec, {"fields", kImagesOption, kMasksOption}));
  DATASETD_ASSIGN_OR_RETURN(ImageChoices choices, ParseImageChoices(spec));
  DATASETD_ASSIGN_OR_RETURN(const std::vector<FieldName> names,
                            ParseFieldNames(spec, "fields"));
  DATASETD_ASSIGN_OR_RETURN(auto file,
                            OpenSourceFile(files, spec.path, "an HDF5 file"));
  const std::string fields =
      absl::StrJoin(names, ",", [](std::string* out, const FieldName& name) {
        absl::StrAppend(out, name.field, ":", name.source);
      });
  DATASETD_ASSIGN_OR_RETURN(auto process, Hdf5Process::Start(std::move(file)));
  DATASETD_ASSIGN_OR_RETURN(const std::string text, process->Open(fields));
  DATASETD_ASSIGN_OR_RETURN(SourceInfo info,
                            ParseInfo(process->info(), text, choices));
  return std::make_unique<Hdf5Reader>(std::move(info), std::move(process));
}

}  // namespace datasetd
