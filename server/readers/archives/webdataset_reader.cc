#include "server/readers/archives/webdataset_reader.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
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
#include "server/readers/mask_names.h"
#include "server/readers/option_values.h"
#include "server/readers/spec_checks.h"

namespace datasetd {
namespace {

using Kind = EncodedField::Kind;

constexpr int64_t kMaxMemberBytes = 256 << 20;
constexpr size_t kMaxMembersOfASample = 256;
// Memory of an element of a set or map, but for its text.
constexpr int64_t kKeyBytes = 48;
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

constexpr char kDotRule[] =
    "a sample's key ends at the first dot of the name: replace other dots in "
    "the names, as in 22_05.png";

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

// The field of a member where none are chosen; false if its ending is not read.
// Characters that no name of a field has become _.
bool DefaultChoice(const std::string& ending, Choice* choice) {
  if (!KindOfEnding(ending, &choice->kind)) return false;
  const size_t dot = ending.rfind('.');
  const std::string last = ending.substr(dot + 1);
  const std::string prefix =
      dot == std::string::npos ? "" : ending.substr(0, dot + 1);
  if (choice->kind == Kind::kImage) {
    choice->field = "image";
    for (const absl::string_view image : kImageEndings) {
      choice->endings.push_back(absl::StrCat(prefix, image));
    }
  } else {
    choice->field = last == "cls" ? "label" : last == "npy" ? "data" : last;
    choice->endings = {ending};
  }
  if (dot == std::string::npos) return true;
  choice->field = ending.substr(0, dot);
  for (char& c : choice->field) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return true;
}

bool IsEndingOf(const Choice& choice, const std::string& ending) {
  return std::find(choice.endings.begin(), choice.endings.end(), ending) !=
         choice.endings.end();
}

// Returns option fields as it would be for these choices.
std::string FieldsOption(const std::vector<Choice>& choices) {
  return absl::StrCat(
      "fields=",
      absl::StrJoin(choices, ",", [](std::string* out, const Choice& choice) {
        absl::StrAppend(out, choice.field, ":",
                        absl::StrJoin(choice.endings, ";"));
      }));
}

std::string EndingsText(const std::vector<Member>& members) {
  constexpr size_t kMaxEndings = 8;
  const size_t count = std::min(members.size(), kMaxEndings);
  return absl::Utf8SafeCHexEscape(absl::StrCat(
      ".",
      absl::StrJoin(
          members.begin(), members.begin() + static_cast<ptrdiff_t>(count),
          ", .",
          [](std::string* out, const Member& m) { out->append(m.ending); }),
      count < members.size() ? ", ..." : ""));
}

// Members that are not read, by the last part of their endings.
class UnreadMembers {
 public:
  void Add(const std::string& ending) {
    constexpr size_t kMaxKinds = 16;
    std::string kind = ending.substr(ending.rfind('.') + 1).substr(0, 16);
    if (counts_.size() == kMaxKinds && !counts_.contains(kind)) kind = "...";
    ++counts_[kind];
  }
  // A member whose name is not a sample's.
  void AddName(const std::string& name) {
    if (num_names_++ == 0) first_name_ = name.substr(0, 100);
  }
  void AddNotes(bool is_warning, std::vector<LoadNote>& notes) const {
    std::vector<std::string> texts;
    for (const auto& [kind, count] : counts_) {
      texts.push_back(
          absl::StrCat(count, " .", kind, count == 1 ? " member" : " members"));
    }
    if (!texts.empty()) {
      AddNote(absl::StrCat("left out: ", absl::StrJoin(texts, ", ")),
              is_warning, notes);
    }
    if (num_names_ == 0) return;
    AddNote(absl::StrCat("left out: ", CountText(num_names_, "member"),
                         " without an ending, as '", first_name_, "'"),
            /*is_warning=*/false, notes);
  }

 private:
  std::map<std::string, int64_t> counts_;
  int64_t num_names_ = 0;
  std::string first_name_;
};

class WebdatasetSource : public Reader {
 public:
  // Without choices the fields are those of the samples' members;
  // `skips_samples` then tells what becomes of samples that lack one.
  WebdatasetSource(ShardFiles shards, std::vector<Choice> choices,
                   bool skips_samples, const ImageOptions& options,
                   const DecodeAccount& account)
      : shards_(std::move(shards)),
        are_chosen_(!choices.empty()),
        skips_samples_(skips_samples),
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
                               absl::StrJoin(choices_[f].endings, ", ."),
                               LackText(index))
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

  bool KeepClasses(size_t field, bool is_certain) override {
    fields_[field].KeepClasses(is_certain);
    info_.fields[field] = fields_[field].spec();
    return info_.fields[field].is_mask;
  }

 private:
  absl::Status IndexShard(size_t shard);
  absl::Status AddSample(const RandomAccessFile& file, const std::string& key,
                         const std::vector<Member>& members);
  // Finds the fields of the members, where none are chosen.
  absl::Status AddChoices(const RandomAccessFile& file, const std::string& key,
                          const std::vector<Member>& members, bool is_key_seen);
  // Of all samples so far.
  absl::Status InsertChoice(Choice choice);
  static absl::Status Error(const RandomAccessFile& file,
                            const std::string& key, const Member& member,
                            absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.info().path, ": offset ", member.place.offset,
                     ": sample '", absl::Utf8SafeCHexEscape(key), "' ", what));
  }
  static absl::Status NotAdjacent(const RandomAccessFile& file,
                                  const std::string& key,
                                  const Member& member) {
    return Error(file, key, member,
                 "is in several pieces: its members must follow each other; "
                 "write the archive sorted by name (tar --sort=name)");
  }
  std::string LackText(int64_t index) const {
    const auto found = lacks_.find(index);
    return found == lacks_.end() ? "" : found->second;
  }
  // By their names and the first good sample.
  void FindMasks();
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
  const bool are_chosen_;
  const bool skips_samples_;
  std::vector<Choice> choices_;
  const ImageOptions options_;
  const DecodeAccount account_;
  ListMemory list_memory_;
  SourceInfo info_;
  std::vector<EncodedField> fields_;     // one per choice
  std::vector<int64_t> first_of_shard_;  // index of each shard's first sample
  std::vector<Place> places_;            // [sample, field]
  // What the first samples that lack a field have instead.
  std::map<int64_t, std::string> lacks_;
  // While the source is opened: hashes of the shard's keys.
  absl::flat_hash_set<size_t> keys_;
  std::string first_key_;
  UnreadMembers unread_;
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
  // Labels may be among what is left out.
  const bool are_all_images =
      std::all_of(choices_.begin(), choices_.end(),
                  [](const Choice& c) { return c.kind == Kind::kImage; });
  unread_.AddNotes(!are_chosen_ && are_all_images, info_.notes);
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
      unread_.AddName(tar_member.name);
      continue;
    }
    if (!has_member || member_key != key) {
      if (!members.empty()) {
        DATASETD_RETURN_IF_ERROR(AddSample(*file, key, members));
      }
      members.clear();
      key = std::move(member_key);
    }
    if (!has_member) break;
    const bool is_twice = std::any_of(
        members.begin(), members.end(),
        [&](const Member& other) { return other.ending == member.ending; });
    if (is_twice || members.size() == kMaxMembersOfASample) {
      return absl::InvalidArgumentError(absl::StrCat(
          file->info().path, ": offset ", tar_member.offset, ": sample '",
          absl::Utf8SafeCHexEscape(key), "' has '.",
          absl::Utf8SafeCHexEscape(member.ending), "' twice, or more than ",
          kMaxMembersOfASample, " members; ", kDotRule));
    }
    members.push_back(std::move(member));
  }
  list_memory_.Drop(static_cast<int64_t>(keys_.size()) * kKeyBytes);
  keys_.clear();
  return absl::OkStatus();
}

absl::Status WebdatasetSource::AddSample(const RandomAccessFile& file,
                                         const std::string& key,
                                         const std::vector<Member>& members) {
  DATASETD_RETURN_IF_ERROR(list_memory_.Add(kKeyBytes));
  const bool is_key_seen = !keys_.insert(absl::HashOf(key)).second;
  if (!are_chosen_) {
    DATASETD_RETURN_IF_ERROR(AddChoices(file, key, members, is_key_seen));
  }
  DATASETD_RETURN_IF_ERROR(
      list_memory_.Add(static_cast<int64_t>(choices_.size() * sizeof(Place))));
  bool lacks_field = false;
  for (const Choice& choice : choices_) {
    auto found = members.end();
    for (const std::string& ending : choice.endings) {
      if (found != members.end()) break;
      found = std::find_if(
          members.begin(), members.end(),
          [&](const Member& member) { return member.ending == ending; });
    }
    places_.push_back(found == members.end() ? Place() : found->place);
    lacks_field |= found == members.end();
  }
  for (const Member& member : members) {
    if (std::none_of(choices_.begin(), choices_.end(),
                     [&](const Choice& choice) {
                       return IsEndingOf(choice, member.ending);
                     })) {
      unread_.Add(member.ending);
    }
  }
  if (lacks_field && is_key_seen) {
    return NotAdjacent(file, key, members.front());
  }
  if (lacks_field && lacks_.size() < kMaxListedBadSamples) {
    const bool has_dots =
        std::any_of(members.begin(), members.end(), [](const Member& member) {
          return absl::StrContains(member.ending, '.');
        });
    std::string text = absl::StrCat(
        "; sample '", absl::Utf8SafeCHexEscape(key.substr(0, 200)), "' has ",
        EndingsText(members), has_dots ? "; " : "", has_dots ? kDotRule : "");
    DATASETD_RETURN_IF_ERROR(list_memory_.Add(
        static_cast<int64_t>(sizeof(text) + text.size()) + kKeyBytes));
    lacks_.emplace(info_.num_samples, std::move(text));
  }
  // Before a large archive is walked to its end.
  if (++info_.num_samples == kMaxFirstSamples) return FindFields();
  return absl::OkStatus();
}

absl::Status WebdatasetSource::AddChoices(const RandomAccessFile& file,
                                          const std::string& key,
                                          const std::vector<Member>& members,
                                          bool is_key_seen) {
  const bool is_first = info_.num_samples == 0;
  std::vector<const Member*> member_of(choices_.size());
  for (const Member& member : members) {
    auto choice = std::find_if(
        choices_.begin(), choices_.end(),
        [&](const Choice& c) { return IsEndingOf(c, member.ending); });
    if (choice == choices_.end()) {
      Choice added;
      if (!DefaultChoice(member.ending, &added)) continue;
      if (!IsFieldName(added.field)) {
        return Error(
            file, key, member,
            absl::StrCat("has .", absl::Utf8SafeCHexEscape(member.ending),
                         ", which gives no name of a field; ", kDotRule));
      }
      choice =
          std::find_if(choices_.begin(), choices_.end(),
                       [&](const Choice& c) { return c.field == added.field; });
      if (choice == choices_.end()) {
        if (!is_first && is_key_seen) return NotAdjacent(file, key, member);
        if (!is_first && (!skips_samples_ || !fields_.empty())) {
          std::vector<Choice> wanted = choices_;
          wanted.push_back(added);
          return Error(
              file, key, member,
              absl::StrCat(
                  "has .", absl::Utf8SafeCHexEscape(member.ending),
                  ", and the first sample, '",
                  absl::Utf8SafeCHexEscape(first_key_), "', has no field '",
                  added.field,
                  "': name the fields that are wanted by the option ",
                  FieldsOption(choices_), " or ", FieldsOption(wanted),
                  absl::StrContains(member.ending, '.') ? "; " : "",
                  absl::StrContains(member.ending, '.') ? kDotRule : ""));
        }
        if (choices_.size() == kMaxMembersOfASample) {
          return Error(file, key, member,
                       absl::StrCat("has more than ", kMaxMembersOfASample,
                                    " fields; ", kDotRule));
        }
        DATASETD_RETURN_IF_ERROR(InsertChoice(std::move(added)));
        // Positions have changed: all members are looked at again.
        return AddChoices(file, key, members, is_key_seen);
      }
    }
    const Member*& other =
        member_of[static_cast<size_t>(choice - choices_.begin())];
    if (other != nullptr) {
      return Error(
          file, key, member,
          absl::StrCat(
              "has .", absl::Utf8SafeCHexEscape(other->ending), " and .",
              absl::Utf8SafeCHexEscape(member.ending),
              ", which are both field '", choice->field,
              "': name two fields by the option fields=", choice->field, ":",
              other->ending, ",other:", member.ending));
    }
    other = &member;
  }
  if (!choices_.empty()) {
    if (first_key_.empty()) first_key_ = key;
    return absl::OkStatus();
  }
  return Error(file, key, members.front(),
               absl::StrCat("has no field that is read: ", EndingsText(members),
                            "; expected .", absl::StrJoin(kImageEndings, ", ."),
                            ", .cls or .npy; ", kDotRule));
}

absl::Status WebdatasetSource::InsertChoice(Choice choice) {
  // Images come first.
  const auto place =
      choice.kind == Kind::kImage
          ? std::find_if(choices_.begin(), choices_.end(),
                         [](const Choice& c) { return c.kind != Kind::kImage; })
          : choices_.end();
  const auto at = static_cast<size_t>(place - choices_.begin());
  const size_t num_before = choices_.size();
  choices_.insert(place, std::move(choice));
  const auto num_samples = static_cast<size_t>(info_.num_samples);
  DATASETD_RETURN_IF_ERROR(
      list_memory_.Add(static_cast<int64_t>(num_samples * sizeof(Place))));
  std::vector<Place> places;
  for (size_t i = 0; i < num_samples; ++i) {
    for (size_t f = 0; f < num_before + 1; ++f) {
      places.push_back(f == at ? Place()
                               : places_[i * num_before + f - (f > at)]);
    }
  }
  places_ = std::move(places);
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
        FindMasks();
        return absl::OkStatus();
      });
}

void WebdatasetSource::FindMasks() {
  for (size_t f = 0; f < fields_.size(); ++f) {
    const FieldSpec& field = info_.fields[f];
    if (!field.is_image || field.is_mask) continue;
    const bool is_beside_colours = HasOtherColours(info_.fields, f);
    if (IsMaskName(field.name, {.is_beside_colours = is_beside_colours})) {
      KeepClasses(f, false);
    }
  }
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
      std::move(shards), std::move(choices),
      spec.bad_samples() > v1::BAD_SAMPLE_POLICY_FAIL, options,
      context.account);
  DATASETD_RETURN_IF_ERROR(source->Index());
  return source;
}

}  // namespace datasetd
