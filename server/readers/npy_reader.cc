#include "server/readers/npy_reader.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cuda/status_macros.h"
#include "server/readers/npy_header.h"
#include "server/readers/read_buffers.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr size_t kMaxFields = 64;
constexpr size_t kMaxNameBytes = 64;
constexpr int64_t kMaxImageChannels = 4;
constexpr absl::string_view kImagesOption = "images";
constexpr absl::string_view kMasksOption = "masks";

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

  absl::Status Read(int64_t count,
                    absl::Span<const absl::Span<uint8_t>> buffers) override {
    DATASETD_RETURN_IF_ERROR(
        CheckReadBuffers(info_, position_, count, buffers));
    for (size_t i = 0; i < fields_.size(); ++i) {
      const NpyField& field = fields_[i];
      const int64_t sample_bytes = field.spec.sample_bytes();
      DATASETD_RETURN_IF_ERROR(ReadExactly(
          *field.file, field.header.data_offset + position_ * sample_bytes,
          buffers[i]));
      if (field.header.is_bool) {
        DATASETD_RETURN_IF_ERROR(CheckBools(field, buffers[i]));
      }
    }
    position_ += count;
    return absl::OkStatus();
  }

 private:
  absl::Status CheckBools(const NpyField& field,
                          absl::Span<const uint8_t> values) const {
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](uint8_t value) { return value > 1; });
    if (bad == values.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        field.file->info().path, ": sample ",
        position_ + (bad - values.begin()) / field.spec.sample_bytes(),
        ": a bool of value ", *bad, ", expected 0 or 1"));
  }

  const SourceInfo info_;
  const std::vector<NpyField> fields_;
  int64_t position_ = 0;
};

bool IsFieldName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_';
         });
}

// By field name: true, or false where a minus stood before it.
using FieldChoice = std::map<std::string, bool>;

absl::StatusOr<FieldChoice> ParseFieldsOption(const SourceSpec& spec,
                                              absl::string_view option_name) {
  FieldChoice choice;
  const auto option = spec.options.find(std::string(option_name));
  if (option == spec.options.end()) return choice;
  for (absl::string_view item : absl::StrSplit(option->second, ',')) {
    item = absl::StripAsciiWhitespace(item);
    const bool is_chosen = !absl::ConsumePrefix(&item, "-");
    if (!IsFieldName(item) ||
        !choice.emplace(std::string(item), is_chosen).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "option ", option_name, " is '",
          absl::Utf8SafeCHexEscape(option->second),
          "', expected a comma-separated list of fields, each once, with a "
          "minus before those that are not ", option_name));
    }
  }
  return choice;
}

// What is left of an option when every field has taken its part.
absl::Status CheckAllTaken(const FieldChoice& choice,
                           absl::string_view option_name,
                           const std::string& path) {
  if (choice.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "option ", option_name, " names '", choice.begin()->first, "', but ",
      path, " holds no ", choice.begin()->first, ".npy"));
}

bool IsNamedAsImage(absl::string_view name) {
  return name == "image" || name == "mask";
}

bool IsImageByDefault(absl::string_view name, const NpyHeader& header) {
  const std::vector<int64_t>& shape = header.shape;
  if (shape.size() == 3) {
    return IsNamedAsImage(name) || header.dtype == Dtype::kUint8;
  }
  return shape.size() == 4 &&
         (IsNamedAsImage(name) || shape.back() <= kMaxImageChannels);
}

absl::StatusOr<FieldSpec> MakeFieldSpec(const std::string& path,
                                        const std::string& name,
                                        const NpyHeader& header,
                                        bool is_image, bool is_mask) {
  const std::string shape_text =
      absl::StrCat("(", absl::StrJoin(header.shape, ", "), ")");
  FieldSpec spec = {
      .name = name,
      .dtype = header.dtype,
      .shape = {header.shape.begin() + 1, header.shape.end()},
      .is_image = is_image,
      .is_mask = is_mask,
  };
  if (spec.num_elements() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": shape ", shape_text,
                     ": more than 2^31 - 1 elements a sample"));
  }
  if (!is_image) return spec;
  if (spec.shape.size() == 2) {
    spec.shape.resize(3, 1);
    return spec;
  }
  if (spec.shape.size() == 3 && spec.shape.back() <= kMaxImageChannels) {
    return spec;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": shape ", shape_text,
      ", expected an image as (N, H, W) or (N, H, W, C) with C of 1 to ",
      kMaxImageChannels,
      "; move the channels last, or say that it is no image with the option "
      "images=-",
      name));
}

// Takes what `images` and `masks` say of the field out of them.
absl::StatusOr<NpyField> OpenField(const FileInfo& entry, FieldChoice& images,
                                   FieldChoice& masks,
                                   const FileSystem& files) {
  const absl::string_view file_name =
      absl::string_view(entry.path).substr(entry.path.rfind('/') + 1);
  const std::string name(absl::StripSuffix(file_name, ".npy"));
  if (!IsFieldName(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        entry.path, ": '", absl::Utf8SafeCHexEscape(name),
        "' cannot name a field: expected a letter or _, then letters, digits "
        "or _, at most ",
        kMaxNameBytes));
  }
  NpyField field;
  DATASETD_ASSIGN_OR_RETURN(field.file, files.Open(entry.path));
  DATASETD_ASSIGN_OR_RETURN(field.header, ReadNpyHeader(*field.file));
  const auto image = images.extract(name);
  const auto mask = masks.extract(name);
  const bool is_named_mask = !mask.empty() && mask.mapped();
  if (is_named_mask && !image.empty() && !image.mapped()) {
    return absl::InvalidArgumentError(
        absl::StrCat("options images and masks contradict each other about '",
                     name, "': a mask is an image"));
  }
  const bool is_image =
      is_named_mask || (!image.empty() ? image.mapped()
                                       : IsImageByDefault(name, field.header));
  const bool is_mask = !mask.empty() ? mask.mapped() : name == "mask";
  DATASETD_ASSIGN_OR_RETURN(
      field.spec, MakeFieldSpec(entry.path, name, field.header, is_image,
                                is_image && is_mask));
  return field;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenNpyReader(const SourceSpec& spec,
                                                      const FileSystem& files) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, {kImagesOption, kMasksOption}));
  DATASETD_ASSIGN_OR_RETURN(FieldChoice images,
                            ParseFieldsOption(spec, kImagesOption));
  DATASETD_ASSIGN_OR_RETURN(FieldChoice masks,
                            ParseFieldsOption(spec, kMasksOption));
  DATASETD_RETURN_IF_ERROR(
      CheckDirectory(files, spec.path, "one .npy file per field"));
  DATASETD_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries,
                            files.List(spec.path));
  SourceInfo info;
  std::vector<NpyField> fields;
  for (const FileInfo& entry : entries) {
    if (entry.is_directory || !absl::EndsWith(entry.path, ".npy")) continue;
    if (fields.size() == kMaxFields) {
      return absl::InvalidArgumentError(
          absl::StrCat(spec.path, ": more than ", kMaxFields, " .npy files"));
    }
    DATASETD_ASSIGN_OR_RETURN(NpyField field,
                              OpenField(entry, images, masks, files));
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
        spec.path, ": holds no .npy file, expected one per field"));
  }
  DATASETD_RETURN_IF_ERROR(CheckAllTaken(images, kImagesOption, spec.path));
  DATASETD_RETURN_IF_ERROR(CheckAllTaken(masks, kMasksOption, spec.path));
  return std::make_unique<NpyReader>(std::move(info), std::move(fields));
}

}  // namespace datasetd
