#include "server/readers/formats/join_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/readers/formats/formats.h"
#include "server/readers/formats/join_options.h"
#include "server/readers/list_memory.h"
#include "server/readers/mask_names.h"
#include "server/readers/option_values.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

class JoinSource : public Reader {
 public:
  JoinSource(std::vector<std::unique_ptr<Reader>> parts,
             std::vector<JoinColumn> columns, SourceInfo info,
             std::unique_ptr<ListMemory> memory)
      : memory_(std::move(memory)),
        parts_(std::move(parts)),
        columns_(std::move(columns)),
        info_(std::move(info)) {}

  const SourceInfo& info() const override { return info_; }

  // Concatenates the raw parts of all sources, with their number before them.
  absl::Status Fetch(int64_t index, RawSample& raw) const override {
    RawSample one;
    size_t used = 0;
    for (const auto& part : parts_) {
      DATASETD_RETURN_IF_ERROR(
          Named(*part, index, FetchPart(*part, index, one)));
      raw.parts.resize(std::max(raw.parts.size(), used + one.parts.size() + 1));
      const auto count = Narrow<uint32_t>(one.parts.size());
      raw.parts[used].resize(sizeof(count));
      std::memcpy(raw.parts[used++].data(), &count, sizeof(count));
      for (std::vector<uint8_t>& bytes : one.parts) {
        std::swap(raw.parts[used++], bytes);
      }
    }
    raw.parts.resize(used);
    return absl::OkStatus();
  }

  absl::Status Probe(int64_t index, const RawSample& raw,
                     SampleProbe& probe) const override {
    probe = {};
    std::vector<SampleProbe> probes(parts_.size());
    const std::vector<RawSample> raws = Split(raw);
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (!parts_[p]->info().is_encoded) {
        probes[p].decode_bytes = RawBytes(raws[p]);
      } else {
        DATASETD_RETURN_IF_ERROR(Named(
            *parts_[p], index, parts_[p]->Probe(index, raws[p], probes[p])));
      }
      probe.decode_bytes += probes[p].decode_bytes;
      probe.has_unapplied_exif |= probes[p].has_unapplied_exif;
    }
    for (const JoinColumn& column : columns_) {
      const std::vector<FieldSpec>& fields = parts_[column.part]->info().fields;
      if (!fields[column.field].is_ragged) continue;
      const auto rank = std::count_if(
          fields.begin(), fields.begin() + static_cast<ptrdiff_t>(column.field),
          [](const FieldSpec& field) { return field.is_ragged; });
      probe.sizes.push_back(
          probes[column.part].sizes[static_cast<size_t>(rank)]);
    }
    // Decode also holds a copy of the parts, and fields that are not selected.
    for (const std::vector<uint8_t>& bytes : raw.parts) {
      probe.decode_bytes += static_cast<int64_t>(bytes.size());
    }
    return absl::OkStatus();
  }

  absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const override {
    const std::vector<RawSample> raws = Split(raw);
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Reader& part = *parts_[p];
      if (!part.info().is_encoded) {
        for (size_t c = 0; c < columns_.size(); ++c) {
          if (columns_[c].part != p) continue;
          const std::vector<uint8_t>& bytes = raws[p].parts[columns_[c].field];
          std::copy(bytes.begin(), bytes.end(), fields[c].begin());
        }
        continue;
      }
      SampleProbe probe;
      DATASETD_RETURN_IF_ERROR(
          Named(part, index, part.Probe(index, raws[p], probe)));
      std::vector<absl::Span<uint8_t>> spans(part.info().fields.size());
      for (size_t c = 0; c < columns_.size(); ++c) {
        if (columns_[c].part == p) spans[columns_[c].field] = fields[c];
      }
      std::vector<std::vector<uint8_t>> unwanted;
      size_t num_ragged = 0;
      for (size_t f = 0; f < spans.size(); ++f) {
        FieldSpec field = part.info().fields[f];
        if (field.is_ragged) {
          field.shape[0] = probe.sizes[num_ragged].height;
          field.shape[1] = probe.sizes[num_ragged++].width;
        }
        if (spans[f].data() != nullptr) continue;
        unwanted.emplace_back(static_cast<size_t>(field.sample_bytes()));
        spans[f] = absl::MakeSpan(unwanted.back());
      }
      DATASETD_RETURN_IF_ERROR(
          Named(part, index, part.Decode(index, raws[p], spans)));
    }
    return absl::OkStatus();
  }

  SampleLocation Locate(int64_t index) const override {
    SampleLocation location = parts_[0]->Locate(index);
    for (size_t p = 1; p < parts_.size(); ++p) {
      location.size_bytes = SaturatingAdd(location.size_bytes,
                                          parts_[p]->Locate(index).size_bytes);
    }
    return location;
  }

  void AllowSmallerImages(ImageSize at_least) override {
    for (const auto& part : parts_) part->AllowSmallerImages(at_least);
  }

 private:
  // The raw parts of a plain source are its fields.
  static absl::Status FetchPart(Reader& part, int64_t index, RawSample& raw) {
    if (part.info().is_encoded) return part.Fetch(index, raw);
    const std::vector<FieldSpec>& fields = part.info().fields;
    std::vector<absl::Span<uint8_t>> spans;
    raw.parts.resize(fields.size());
    for (size_t f = 0; f < fields.size(); ++f) {
      raw.parts[f].resize(static_cast<size_t>(fields[f].sample_bytes()));
      spans.push_back(absl::MakeSpan(raw.parts[f]));
    }
    absl::Status status = part.Read(index, 1, spans);
    // A value is out of range.
    return absl::IsInvalidArgument(status) ? InBytes(std::move(status))
                                           : status;
  }

  // Adds the path of the failing part, since Locate names the first part's
  // file.
  static absl::Status Named(const Reader& part, int64_t index,
                            const absl::Status& status) {
    if (status.ok()) return status;
    const std::string path = part.Locate(index).path;
    if (absl::StrContains(status.message(), path)) return status;
    absl::Status named(status.code(),
                       absl::StrCat(path, ": ", status.message()));
    return IsInBytes(status) ? InBytes(std::move(named)) : named;
  }

  std::vector<RawSample> Split(const RawSample& raw) const {
    std::vector<RawSample> raws(parts_.size());
    size_t used = 0;
    for (RawSample& one : raws) {
      uint32_t count = 0;
      std::memcpy(&count, raw.parts[used++].data(), sizeof(count));
      one.parts.assign(
          raw.parts.begin() + static_cast<ptrdiff_t>(used),
          raw.parts.begin() + static_cast<ptrdiff_t>(used + count));
      used += count;
    }
    return raws;
  }

  const std::unique_ptr<ListMemory> memory_;
  const std::vector<std::unique_ptr<Reader>> parts_;
  const std::vector<JoinColumn> columns_;
  const SourceInfo info_;
};

// Makes masks of the images that the join gives the name of one.
void FindMasks(const std::vector<std::unique_ptr<Reader>>& parts,
               const std::vector<JoinColumn>& columns,
               std::vector<FieldSpec>& fields) {
  for (size_t c = 0; c < columns.size(); ++c) {
    FieldSpec& field = fields[c];
    Reader& part = *parts[columns[c].part];
    const FieldSpec& own = part.info().fields[columns[c].field];
    if (!field.is_image || field.is_mask || field.name == own.name) continue;
    const bool is_bytes = field.dtype == Dtype::kUint8;
    const bool is_certain = IsMaskName(field.name, {.is_bytes = is_bytes});
    if (!is_certain &&
        !IsMaskName(field.name,
                    {.is_bytes = is_bytes,
                     .is_beside_colours = HasOtherColours(fields, c)})) {
      continue;
    }
    if (!part.info().is_encoded) {
      field.is_mask = field.shape[2] == 1 || field.name == "mask";
    } else if (part.KeepClasses(columns[c].field, is_certain)) {
      field.is_mask = true;
      field.shape[2] = 1;
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenJoinReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  DATASETD_ASSIGN_OR_RETURN(const std::vector<v1::DatasetSpec> specs,
                            ParseJoinParts(spec));
  DATASETD_ASSIGN_OR_RETURN(std::vector<FieldName> names,
                            ParseFieldNames(spec, "fields"));
  DATASETD_RETURN_IF_ERROR(
      CheckDirectory(context.files, spec.path(), "the parts of the join"));
  SourceInfo info;
  info.is_encoded = true;
  auto memory = std::make_unique<ListMemory>(context.account);
  std::vector<std::unique_ptr<Reader>> parts;
  for (const v1::DatasetSpec& part_spec : specs) {
    DATASETD_ASSIGN_OR_RETURN(auto part, OpenReader(part_spec, context));
    const SourceInfo& part_info = part->info();
    if (parts.empty()) info.num_samples = part_info.num_samples;
    if (part_info.num_samples != info.num_samples) {
      return absl::InvalidArgumentError(absl::StrCat(
          part_spec.path(), " holds ", part_info.num_samples, " samples, but ",
          specs[0].path(), " holds ", info.num_samples));
    }
    for (const FileInfo& file : part_info.files) {
      DATASETD_RETURN_IF_ERROR(memory->Add(ListedBytes(file)));
    }
    info.files.insert(info.files.end(), part_info.files.begin(),
                      part_info.files.end());
    if (info.class_names.empty()) info.class_names = part_info.class_names;
    for (const LoadNote& note : part_info.notes) {
      AddNote(absl::StrCat("part ", parts.size(), " (", part_spec.format(),
                           "): ", note.text),
              note.is_warning, info.notes);
    }
    parts.push_back(std::move(part));
  }
  if (names.empty()) {
    for (size_t p = 0; p < parts.size(); ++p) {
      for (const FieldSpec& field : parts[p]->info().fields) {
        names.push_back({field.name, absl::StrCat(p, ".", field.name)});
      }
    }
  }
  std::vector<JoinColumn> columns;
  std::map<std::string, size_t> seen;
  for (const FieldName& name : names) {
    DATASETD_ASSIGN_OR_RETURN(const JoinColumn column,
                              FindJoinColumn(parts, name.source));
    if (!seen.emplace(name.field, column.part).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", name.field, "' is in part ", seen[name.field], " and in ",
          column.part, "; choose or rename with option fields"));
    }
    if (std::any_of(
            columns.begin(), columns.end(), [&](const JoinColumn& other) {
              return other.part == column.part && other.field == column.field;
            })) {
      return absl::InvalidArgumentError(
          absl::StrCat("option fields: '", name.source, "' is chosen twice"));
    }
    columns.push_back(column);
    info.fields.push_back(parts[column.part]->info().fields[column.field]);
    info.fields.back().name = name.field;
  }
  FindMasks(parts, columns, info.fields);
  return std::make_unique<JoinSource>(std::move(parts), std::move(columns),
                                      std::move(info), std::move(memory));
}

}  // namespace datasetd
