#include "server/readers/arrays/npy_reader.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/files/reopened_file.h"
#include "server/readers/arrays/npy_fields.h"
#include "server/readers/list_memory.h"
#include "server/readers/npy_header.h"
#include "server/readers/read_buffers.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr size_t kMaxFields = 64;

// One .npy file.
struct NpyField {
  std::unique_ptr<RandomAccessFile> file;
  NpyHeader header;
  FieldSpec spec;
};

class NpyReader : public Reader {
 public:
  NpyReader(SourceInfo info, std::vector<NpyField> fields)
      : info_(std::move(info)), fields_(std::move(fields)) {}

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> buffers) override {
    DATASETD_RETURN_IF_ERROR(CheckReadBuffers(info_, first, count, buffers));
    for (size_t i = 0; i < fields_.size(); ++i) {
      const NpyField& field = fields_[i];
      const int64_t sample_bytes = field.spec.sample_bytes();
      DATASETD_RETURN_IF_ERROR(ReadExactly(
          *field.file, field.header.data_offset + first * sample_bytes,
          buffers[i]));
      if (field.header.is_bool) {
        DATASETD_RETURN_IF_ERROR(
            CheckBools(field.file->info().path, field.spec, first, buffers[i]));
      }
    }
    return absl::OkStatus();
  }

  SampleLocation Locate(int64_t index) const override {
    int64_t size_bytes = 0;
    for (const NpyField& field : fields_) {
      size_bytes = SaturatingAdd(size_bytes, field.spec.sample_bytes());
    }
    return {.path = info_.files[0].path,
            .offset = fields_[0].header.data_offset +
                      index * fields_[0].spec.sample_bytes(),
            .size_bytes = size_bytes};
  }

 private:
  const SourceInfo info_;
  const std::vector<NpyField> fields_;
};

// Removes the field's entries from `choices`.
absl::StatusOr<NpyField> OpenField(const FileInfo& entry, ImageChoices& choices,
                                   const FileSystem& files) {
  const absl::string_view file_name =
      absl::string_view(entry.path).substr(entry.path.rfind('/') + 1);
  const std::string name(absl::StripSuffix(file_name, ".npy"));
  NpyField field;
  DATASETD_ASSIGN_OR_RETURN(const auto file, files.Open(entry.path));
  DATASETD_ASSIGN_OR_RETURN(field.header, ReadNpyHeader(*file));
  field.file = OpenWhenRead(files, file->info());
  DATASETD_ASSIGN_OR_RETURN(
      field.spec, MakeNpyField(entry.path, name, field.header, choices));
  return field;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenNpyReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, {kImagesOption, kMasksOption}));
  DATASETD_ASSIGN_OR_RETURN(const ImageChoices chosen, ParseImageChoices(spec));
  ImageChoices choices = chosen;  // those that are not taken yet
  DATASETD_RETURN_IF_ERROR(
      CheckDirectory(context.files, spec.path(), "one .npy file per field"));
  ListMemory passing(context.account);
  DATASETD_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries,
                            ListCharged(context.files, spec.path(), passing));
  SourceInfo info;
  std::vector<NpyField> fields;
  for (const FileInfo& entry : entries) {
    if (entry.is_directory || !absl::EndsWith(entry.path, ".npy")) continue;
    if (fields.size() == kMaxFields) {
      return absl::InvalidArgumentError(
          absl::StrCat(spec.path(), ": more than ", kMaxFields, " .npy files"));
    }
    DATASETD_ASSIGN_OR_RETURN(NpyField field,
                              OpenField(entry, choices, context.files));
    const int64_t num_samples = field.header.shape[0];
    if (fields.empty()) {
      info.num_samples = num_samples;
    } else if (num_samples != info.num_samples) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.path, " holds ", num_samples, " samples, but ",
                       info.files.front().path, " holds ", info.num_samples));
    }
    info.fields.push_back(field.spec);
    info.files.push_back(field.file->info());
    fields.push_back(std::move(field));
  }
  if (fields.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.path(), ": holds no .npy file, expected one per field"));
  }
  DATASETD_RETURN_IF_ERROR(CheckAllTaken(choices, spec.path()));
  MarkMasks(chosen, info.fields);
  for (size_t f = 0; f < fields.size(); ++f) fields[f].spec = info.fields[f];
  return std::make_unique<NpyReader>(std::move(info), std::move(fields));
}

}  // namespace datasetd
