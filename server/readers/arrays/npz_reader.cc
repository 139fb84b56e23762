#include "server/readers/arrays/npz_reader.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "server/readers/arrays/npy_fields.h"
#include "server/readers/arrays/zip_members.h"
#include "server/readers/field_names.h"
#include "server/readers/npy_header.h"
#include "server/readers/read_buffers.h"
#include "server/readers/source_file.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

constexpr size_t kMaxFields = 64;

struct NpzField {
  std::string where;                    // path and member
  std::unique_ptr<InputStream> stream;  // positioned after the header
  NpyHeader header;
  FieldSpec spec;
};

class NpzReader : public Reader {
 public:
  NpzReader(SourceInfo info, std::vector<NpzField> fields)
      : info_(std::move(info)), fields_(std::move(fields)) {}

  const SourceInfo& info() const override { return info_; }

  absl::Status Read(int64_t count,
                    absl::Span<const absl::Span<uint8_t>> buffers) override {
    DATASETD_RETURN_IF_ERROR(
        CheckReadBuffers(info_, position_, count, buffers));
    const bool is_end = position_ + count == info_.num_samples;
    for (size_t i = 0; i < fields_.size(); ++i) {
      const NpzField& field = fields_[i];
      DATASETD_RETURN_IF_ERROR(field.stream->Read(buffers[i]));
      if (field.header.is_bool) {
        DATASETD_RETURN_IF_ERROR(
            CheckBools(field.where, field.spec, position_, buffers[i]));
      }
      if (is_end) DATASETD_RETURN_IF_ERROR(field.stream->ExpectEnd());
    }
    position_ += count;
    return absl::OkStatus();
  }

 private:
  const SourceInfo info_;
  const std::vector<NpzField> fields_;
  int64_t position_ = 0;
};

// All members, sorted by name.
std::vector<FieldName> AllMembers(const std::vector<ZipMember>& members) {
  std::vector<FieldName> names;
  for (const ZipMember& member : members) {
    const std::string name(absl::StripSuffix(member.name, ".npy"));
    names.push_back({.field = name, .source = name});
  }
  std::sort(
      names.begin(), names.end(),
      [](const FieldName& a, const FieldName& b) { return a.field < b.field; });
  return names;
}

absl::StatusOr<size_t> FindMember(const std::string& path,
                                  const std::vector<ZipMember>& members,
                                  const std::string& name) {
  for (size_t i = 0; i < members.size(); ++i) {
    if (absl::StripSuffix(members[i].name, ".npy") == name) return i;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": holds no array '", absl::Utf8SafeCHexEscape(name),
      "'; it holds ",
      absl::StrJoin(members, ", ", [](std::string* out, const ZipMember& m) {
        absl::StrAppend(out, absl::Utf8SafeCHexEscape(m.name));
      })));
}

absl::StatusOr<NpzField> OpenField(
    const std::shared_ptr<const RandomAccessFile>& file,
    const ZipMember& member, size_t index, const std::string& name,
    ImageChoices& choices) {
  NpzField field;
  field.where = absl::StrCat(file->info().path, ": ",
                             absl::Utf8SafeCHexEscape(member.name));
  DATASETD_ASSIGN_OR_RETURN(field.stream, OpenZipMember(file, index));
  DATASETD_ASSIGN_OR_RETURN(
      field.header, ReadNpyHeader(field.where, member.size_bytes,
                                  [&](int64_t, absl::Span<uint8_t> buffer) {
                                    return field.stream->Read(buffer);
                                  }));
  DATASETD_ASSIGN_OR_RETURN(
      field.spec, MakeNpyField(field.where, name, field.header, choices));
  return field;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenNpzReader(const SourceSpec& spec,
                                                      const FileSystem& files) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  DATASETD_RETURN_IF_ERROR(
      CheckOptions(spec, {"fields", kImagesOption, kMasksOption}));
  DATASETD_ASSIGN_OR_RETURN(ImageChoices choices, ParseImageChoices(spec));
  DATASETD_ASSIGN_OR_RETURN(std::vector<FieldName> names,
                            ParseFieldNames(spec, "fields"));
  DATASETD_ASSIGN_OR_RETURN(std::shared_ptr<const RandomAccessFile> file,
                            OpenSourceFile(files, spec.path, "an .npz file"));
  DATASETD_ASSIGN_OR_RETURN(const std::vector<ZipMember> members,
                            ListZipMembers(*file));
  if (names.empty()) names = AllMembers(members);
  if (names.empty() || names.size() > kMaxFields) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.path, ": ", names.size(), " arrays, expected 1 to ",
                     kMaxFields, "; choose with option fields"));
  }
  SourceInfo info;
  info.files.push_back(file->info());
  std::vector<NpzField> fields;
  std::map<size_t, std::string> chosen;
  for (const FieldName& name : names) {
    DATASETD_ASSIGN_OR_RETURN(const size_t index,
                              FindMember(spec.path, members, name.source));
    if (!chosen.emplace(index, name.field).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          spec.path, ": array '", absl::Utf8SafeCHexEscape(name.source),
          "' is there or was chosen twice"));
    }
    DATASETD_ASSIGN_OR_RETURN(
        NpzField field,
        OpenField(file, members[index], index, name.field, choices));
    const int64_t num_samples = field.header.shape[0];
    if (fields.empty()) info.num_samples = num_samples;
    if (num_samples != info.num_samples) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.where, " holds ", num_samples, " samples, but ",
                       fields.front().where, " holds ", info.num_samples,
                       "; choose arrays of one length with option fields"));
    }
    info.fields.push_back(field.spec);
    fields.push_back(std::move(field));
  }
  DATASETD_RETURN_IF_ERROR(CheckAllTaken(choices, spec.path));
  return std::make_unique<NpzReader>(std::move(info), std::move(fields));
}

}  // namespace datasetd
