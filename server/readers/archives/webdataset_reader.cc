#include "server/readers/archives/webdataset_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/readers/archives/shard_files.h"
#include "server/readers/archives/tar_members.h"
#include "server/readers/first_sample.h"
#include "server/readers/images/encoded_field.h"
#include "server/readers/images/image_options.h"
#include "server/readers/list_memory.h"
#include "server/readers/option_values.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

using Kind = EncodedField::Kind;

constexpr int64_t kMaxMemberBytes = 256 << 20;
constexpr size_t kMaxMembersOfASample = 256;
constexpr absl::string_view kImageEndings[] = {"jpg", "jpeg", "png", "bmp"};
constexpr absl::string_view kNumberEndings[] = {
    "cls", "cls2", "class", "count", "index", "inx", "id"};

bool IsOneOf(absl::string_view text, absl::Span<const absl::string_view> all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

// Sets the kind from the last part of the ending; false if it is not supported.
bool KindOfEnding(absl::string_view ending, Kind* kind) {
  const absl::string_view last = ending.substr(ending.rfind('.') + 1);
  if (IsOneOf(last, kImageEndings)) {
    *kind = Kind::kImage;
  } else if (IsOneOf(last, kNumberEndings)) {
    *kind = Kind::kNumber;
  } else if (last == "npy") {
    *kind = Kind::kNpy;
  } else {
    return false;
  }
  return true;
}

// The position of a sample's member in its shard; size -1: missing.
struct Place {
  int64_t offset = 0;
  int64_t size_bytes = -1;
};

struct Member {
  std::string ending;  // lower case
  Place place;
};

// A field and its possible endings.
struct Choice {
  std::string field;
  std::vector<std::string> endings;
  Kind kind = Kind::kImage;
};

// Splits at the first dot of the base name; false if the name is not a
// sample's.
bool CutName(absl::string_view name, std::string* key, std::string* ending) {
  const size_t slash = name.rfind('/');
  const size_t base = slash == absl::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == absl::string_view::npos || dot == base) return false;
  *key = std::string(name.substr(0, dot));
  *ending = absl::AsciiStrToLower(name.substr(dot + 1));
  return true;
}

absl::StatusOr<std::vector<Choice>> ParseChoices(const v1::DatasetSpec& spec) {
  std::vector<Choice> choices;
  DATASETD_ASSIGN_OR_RETURN(const std::vector<FieldName> names,
                            ParseFieldNames(spec, "fields"));
  for (const FieldName& name : names) {
    Choice choice = {.field = name.field};
    for (const absl::string_view item : absl::StrSplit(name.source, ';')) {
      const std::string ending =
          absl::AsciiStrToLower(absl::StripAsciiWhitespace(item));
      Kind kind = Kind::kImage;
      if (!KindOfEnding(ending, &kind) ||
          (!choice.endings.empty() && kind != choice.kind)) {
        return absl::InvalidArgumentError(
            absl::StrCat("option fields: field '", name.field, "' is made of '",
                         absl::Utf8SafeCHexEscape(name.source),
                         "', expected endings of one kind: ",
                         absl::StrJoin(kImageEndings, ";"), ", ",
                         absl::StrJoin(kNumberEndings, ";"), ", or npy"));
      }
      choice.kind = kind;
      choice.endings.push_back(ending);
    }
    choices.push_back(std::move(choice));
  }
  return choices;
}

// The fields for the first sample's members.
std::vector<Choice> DefaultChoices(const std::vector<Member>& members) {
  std::vector<Choice> choices;
  for (const Member& member : members) {
    Choice choice;
    if (!KindOfEnding(member.ending, &choice.kind)) continue;
    const size_t dot = member.ending.rfind('.');
    const std::string last = member.ending.substr(dot + 1);
    if (dot != std::string::npos) {
      choice.field = member.ending.substr(0, dot);
      std::replace(choice.field.begin(), choice.field.end(), '.', '_');
      choice.endings = {member.ending};
    } else if (choice.kind == Kind::kImage) {
      choice.field = "image";
      for (const absl::string_view ending : kImageEndings) {
        choice.endings.emplace_back(ending);
      }
    } else {
      choice.field = last == "cls" ? "label" : last == "npy" ? "data" : last;
      choice.endings = {last};
    }
    if (IsFieldName(choice.field) &&
        std::none_of(choices.begin(), choices.end(), [&](const Choice& other) {
          return other.field == choice.field;
        })) {
      choices.push_back(std::move(choice));
    }
  }
  std::stable_partition(choices.begin(), choices.end(),
                        [](const Choice& c) { return c.kind == Kind::kImage; });
  return choices;
}

class WebdatasetSource : public Reader {
 public:
  WebdatasetSource(ShardFiles shards, std::vector<Choice> choices,
                   const ImageOptions& options, const DecodeAccount& account)
      : shards_(std::move(shards)),
        choices_(std::move(choices)),
        options_(options),
        account_(account),
        list_memory_(account) {
    info_.is_encoded = true;
    info_.files = shards_.infos();
  }

  // Finds the samples and their fields.
  absl::Status Index();

  const SourceInfo& info() const override { return info_; }

  absl::Status Fetch(int64_t index, RawSample& raw) const override {
    // By place, since a compressed shard can only be read forward.
    std::vector<std::pair<int64_t, size_t>> fields;
    for (size_t f = 0; f < choices_.size(); ++f) {
      const Place& place = PlaceOf(index, f);
      if (place.size_bytes < 0 || place.size_bytes > kMaxMemberBytes) {
        return InBytes(absl::InvalidArgumentError(absl::StrCat(
            "field '", choices_[f].field, "': ",
            place.size_bytes < 0
                ? absl::StrCat("the sample has no .",
                               absl::StrJoin(choices_[f].endings, ", ."))
                : absl::StrCat(place.size_bytes, " bytes, expected at most ",
                               kMaxMemberBytes))));
      }
      fields.emplace_back(place.offset, f);
    }
    std::sort(fields.begin(), fields.end());
    raw.parts.resize(fields.size());
    for (size_t i = 0; i < fields.size(); ++i) {
      const auto [offset, f] = fields[i];
      if (i > 0 && offset == fields[i - 1].first) {
        raw.parts[f] = raw.parts[fields[i - 1].second];  // the same member
        continue;
      }
      raw.parts[f].resize(static_cast<size_t>(PlaceOf(index, f).size_bytes));
      DATASETD_RETURN_IF_ERROR(
          shards_.ReadAt(ShardOf(index), offset, absl::MakeSpan(raw.parts[f])));
    }
    return absl::OkStatus();
  }

  absl::Status Probe(int64_t index, const RawSample& raw,
                     SampleProbe& probe) const override {
    probe.sizes.clear();
    probe.decode_bytes = 0;
    for (size_t f = 0; f < fields_.size(); ++f) {
      DATASETD_RETURN_IF_ERROR(
          fields_[f].Probe(raw.parts[f], at_least_, probe));
    }
    return absl::OkStatus();
  }

  absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const override {
    for (size_t f = 0; f < fields_.size(); ++f) {
      DATASETD_RETURN_IF_ERROR(
          fields_[f].Decode(raw.parts[f], at_least_, fields[f]));
    }
    return absl::OkStatus();
  }

  SampleLocation Locate(int64_t index) const override {
    SampleLocation location;
    location.path = info_.files[ShardOf(index)].path;
    for (size_t f = 0; f < choices_.size(); ++f) {
      const Place& place = PlaceOf(index, f);
      if (place.size_bytes < 0) continue;
      if (location.size_bytes == 0) location.offset = place.offset;
      location.size_bytes =
          SaturatingAdd(location.size_bytes, place.size_bytes);
    }
    return location;
  }

  void AllowSmallerImages(ImageSize at_least) override {
    if (options_.fast_decode) at_least_ = at_least;
  }

 private:
  absl::Status IndexShard(size_t shard);
  absl::Status AddSample(const RandomAccessFile& file,
                         const std::vector<Member>& members);
  // From the first good sample.
  absl::Status FindFields();

  const Place& PlaceOf(int64_t index, size_t field) const {
    return places_[static_cast<size_t>(index) * choices_.size() + field];
  }
  size_t ShardOf(int64_t index) const {
    return static_cast<size_t>(std::upper_bound(first_of_shard_.begin(),
                                                first_of_shard_.end(), index) -
                               first_of_shard_.begin() - 1);
  }

  ShardFiles shards_;
  std::vector<Choice> choices_;
  const ImageOptions options_;
  const DecodeAccount account_;
  ListMemory list_memory_;
  SourceInfo info_;
  std::vector<EncodedField> fields_;     // one per choice
  std::vector<int64_t> first_of_shard_;  // index of each shard's first sample
  std::vector<Place> places_;            // [sample, field]
  ImageSize at_least_;
};

absl::Status WebdatasetSource::Index() {
  for (size_t shard = 0; shard < shards_.infos().size(); ++shard) {
    first_of_shard_.push_back(info_.num_samples);
    DATASETD_RETURN_IF_ERROR(IndexShard(shard));
  }
  if (info_.num_samples == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        info_.files.front().path,
        ": zero samples: expected members called as 0001.jpg and 0001.cls"));
  }
  if (fields_.empty()) DATASETD_RETURN_IF_ERROR(FindFields());
  // Until the samples are read, which may be long after.
  shards_.CloseAll();
  return absl::OkStatus();
}

absl::Status WebdatasetSource::IndexShard(size_t shard) {
  DATASETD_ASSIGN_OR_RETURN(const auto file, shards_.OpenOne(shard));
  TarMembers archive(file.get());
  std::string key;
  std::vector<Member> members;
  TarMember tar_member;
  while (true) {
    DATASETD_ASSIGN_OR_RETURN(const bool has_member, archive.Next(&tar_member));
    Member member = {.place = {tar_member.offset, tar_member.size_bytes}};
    std::string member_key;
    if (has_member && !CutName(tar_member.name, &member_key, &member.ending)) {
      continue;
    }
    if (!has_member || member_key != key) {
      if (!members.empty()) {
        DATASETD_RETURN_IF_ERROR(AddSample(*file, members));
      }
      members.clear();
      key = std::move(member_key);
    }
    if (!has_member) return absl::OkStatus();
    const bool is_twice = std::any_of(
        members.begin(), members.end(),
        [&](const Member& other) { return other.ending == member.ending; });
    if (is_twice || members.size() == kMaxMembersOfASample) {
      return absl::InvalidArgumentError(absl::StrCat(
          file->info().path, ": offset ", tar_member.offset, ": sample '",
          absl::Utf8SafeCHexEscape(key), "' has '.",
          absl::Utf8SafeCHexEscape(member.ending), "' twice, or more than ",
          kMaxMembersOfASample, " members"));
    }
    members.push_back(std::move(member));
  }
}

absl::Status WebdatasetSource::AddSample(const RandomAccessFile& file,
                                         const std::vector<Member>& members) {
  if (choices_.empty()) choices_ = DefaultChoices(members);
  if (choices_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.info().path, ": offset ", members.front().place.offset,
        ": the first sample has no field that is read: .",
        absl::Utf8SafeCHexEscape(absl::StrJoin(
            members, ", .",
            [](std::string* out, const Member& m) { out->append(m.ending); })),
        "; expected .", absl::StrJoin(kImageEndings, ", ."), ", .cls or .npy"));
  }
  DATASETD_RETURN_IF_ERROR(list_memory_.GrowTo(static_cast<int64_t>(
      (places_.size() + choices_.size()) * sizeof(Place))));
  for (const Choice& choice : choices_) {
    const auto found =
        std::find_if(members.begin(), members.end(), [&](const Member& member) {
          return std::find(choice.endings.begin(), choice.endings.end(),
                           member.ending) != choice.endings.end();
        });
    places_.push_back(found == members.end() ? Place() : found->place);
  }
  // Before a large archive is walked to its end.
  if (++info_.num_samples == kMaxFirstSamples) return FindFields();
  return absl::OkStatus();
}

absl::Status WebdatasetSource::FindFields() {
  return FindFirstGoodSample(
      *this, account_, [this](int64_t, const RawSample& raw) -> absl::Status {
        std::vector<EncodedField> fields;
        for (size_t f = 0; f < choices_.size(); ++f) {
          DATASETD_ASSIGN_OR_RETURN(
              fields.emplace_back(),
              EncodedField::Make(choices_[f].field, choices_[f].kind,
                                 raw.parts[f], options_));
        }
        for (const EncodedField& field : fields) {
          info_.fields.push_back(field.spec());
        }
        fields_ = std::move(fields);
        return absl::OkStatus();
      });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reader>> OpenWebdatasetReader(
    const v1::DatasetSpec& spec, const ReaderContext& context) {
  DATASETD_RETURN_IF_ERROR(ChooseSplit(spec, {}).status());
  std::vector<absl::string_view> known = {"fields", ShardFiles::kOptionName};
  known.insert(known.end(), std::begin(kImageOptionNames),
               std::end(kImageOptionNames));
  DATASETD_RETURN_IF_ERROR(CheckOptions(spec, known));
  DATASETD_ASSIGN_OR_RETURN(const ImageOptions options,
                            ParseImageOptions(spec));
  DATASETD_ASSIGN_OR_RETURN(std::vector<Choice> choices, ParseChoices(spec));
  DATASETD_ASSIGN_OR_RETURN(ShardFiles shards, ShardFiles::Open(spec, context));
  auto source = std::make_unique<WebdatasetSource>(
      std::move(shards), std::move(choices), options, context.account);
  DATASETD_RETURN_IF_ERROR(source->Index());
  return source;
}

}  // namespace datasetd
