#include "server/readers/archives/tf_features.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

constexpr size_t kMaxFields = 64;
constexpr size_t kMaxToldName = 200;

using Kind = TfExample::Feature::Kind;

const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kBytes:
      return "bytes";
    case Kind::kInt64s:
      return "int64";
    case Kind::kFloats:
      return "float";
    case Kind::kNothing:
      break;
  }
  return "nothing";
}

std::string Describe(const TfExample& example) {
  std::string all;
  for (const auto& [name, feature] : example.features()) {
    if (all.size() > 1000) return absl::StrCat(all, ", ...");
    absl::StrAppend(&all, all.empty() ? "" : ", ",
                    absl::Utf8SafeCHexEscape(name.substr(0, kMaxToldName)),
                    ": ", feature.count(), " ", KindName(feature.kind()));
  }
  return all.empty() ? "no feature" : all;
}

int64_t SizeBytes(const TfExample::Feature& feature) {
  return feature.kind() == Kind::kBytes
             ? static_cast<int64_t>(feature.bytes().size())
             : feature.number_bytes();
}

// A valid field name made from a feature's name.
std::string FieldNameOf(absl::string_view feature) {
  std::string name(feature);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

}  // namespace

absl::StatusOr<const TfExample::Feature*> TfFeatures::Find(
    const Entry& entry, const TfExample& example) {
  const auto found = example.features().find(entry.feature);
  const std::string where =
      absl::StrCat("feature '", absl::Utf8SafeCHexEscape(entry.feature), "'");
  if (found == example.features().end()) {
    return absl::InvalidArgumentError(absl::StrCat(where, " is missing"));
  }
  const TfExample::Feature& feature = found->second;
  if (feature.kind() != entry.kind) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, entry.kind == Kind::kInt64s ? " is no int64 list"
                            : entry.kind == Kind::kFloats
                                ? " is no float list"
                                : " holds not one string of bytes"));
  }
  if (entry.kind == Kind::kBytes && feature.count() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, " holds not one string of bytes"));
  }
  return &feature;
}

absl::StatusOr<TfFeatures::Entry> TfFeatures::ParseEntry(
    absl::string_view item, const TfExample& first,
    const ImageOptions& options) {
  const std::string where =
      absl::StrCat("option features: '", absl::Utf8SafeCHexEscape(item), "'");
  const size_t equals = item.find('=');
  const size_t colon = item.rfind(':');
  if (colon == absl::string_view::npos ||
      (equals != absl::string_view::npos && equals > colon)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ", expected NAME=FEATURE:KIND or FEATURE:KIND"));
  }
  Entry entry;
  const size_t begin = equals == absl::string_view::npos ? 0 : equals + 1;
  entry.feature = std::string(item.substr(begin, colon - begin));
  const std::string name = equals == absl::string_view::npos
                               ? FieldNameOf(entry.feature)
                               : std::string(item.substr(0, equals));
  if (!IsFieldName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": '", absl::Utf8SafeCHexEscape(name),
                     "' cannot name a field; give NAME=FEATURE:KIND"));
  }
  const absl::string_view kind = item.substr(colon + 1);
  if (kind == "image" || kind == "jpeg" || kind == "png" || kind == "bmp") {
    DATASETD_ASSIGN_OR_RETURN(const auto* const feature, Find(entry, first));
    DATASETD_ASSIGN_OR_RETURN(
        entry.field, EncodedField::Make(name, EncodedField::Kind::kImage,
                                        feature->bytes(), options));
    return entry;
  }
  absl::string_view dtype = kind.substr(0, kind.find('['));
  absl::string_view shape = kind.substr(dtype.size());
  if (dtype == "float") dtype = "float32";
  if (!shape.empty() && (!absl::ConsumePrefix(&shape, "[") ||
                         !absl::ConsumeSuffix(&shape, "]"))) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ", expected a kind as image, int64, float32[16]"));
  }
  FieldSpec spec = {.name = name};
  DATASETD_ASSIGN_OR_RETURN(spec.dtype, ParseDtype(dtype, where));
  DATASETD_ASSIGN_OR_RETURN(spec.shape, ParseShape(shape, where));
  entry.field = EncodedField::MakeRaw(std::move(spec));
  // The option may speak of bytes or of a list: the first example decides.
  const auto found = first.features().find(entry.feature);
  if (found != first.features().end() && found->second.kind() != Kind::kBytes) {
    if (dtype == "int64") entry.kind = Kind::kInt64s;
    if (dtype == "float32") entry.kind = Kind::kFloats;
  }
  DATASETD_ASSIGN_OR_RETURN(const auto* const feature, Find(entry, first));
  const int64_t size_bytes = SizeBytes(*feature);
  if (size_bytes == entry.field.spec().sample_bytes()) return entry;
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", size_bytes, " bytes in the first example, ",
                   "expected ", entry.field.spec().sample_bytes()));
}

std::vector<TfFeatures::Entry> TfFeatures::Infer(const TfExample& first,
                                                 const ImageOptions& options) {
  std::vector<Entry> entries;
  for (const auto& [name, feature] : first.features()) {
    Entry entry = {.feature = std::string(name)};
    FieldSpec spec = {.name = FieldNameOf(name)};
    if (!IsFieldName(spec.name)) continue;
    if (feature.kind() == Kind::kBytes) {
      if (feature.count() != 1) continue;
      auto field = EncodedField::Make(spec.name, EncodedField::Kind::kImage,
                                      feature.bytes(), options);
      if (!field.ok()) continue;
      entry.field = *std::move(field);
    } else {
      if (feature.count() == 0) continue;
      entry.kind = feature.kind();
      spec.dtype =
          entry.kind == Kind::kInt64s ? Dtype::kInt64 : Dtype::kFloat32;
      if (feature.count() > 1) spec.shape = {feature.count()};
      entry.field = EncodedField::MakeRaw(std::move(spec));
    }
    entries.push_back(std::move(entry));
  }
  std::stable_partition(entries.begin(), entries.end(), [](const Entry& e) {
    return e.field.kind() == EncodedField::Kind::kImage;
  });
  return entries;
}

absl::StatusOr<TfFeatures> TfFeatures::Make(absl::string_view option,
                                            absl::Span<const uint8_t> first,
                                            const ImageOptions& options) {
  DATASETD_ASSIGN_OR_RETURN(const TfExample example, TfExample::Parse(first));
  const auto with_features = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(status.message(),
                                                    "; the first example has ",
                                                    Describe(example)));
  };
  TfFeatures features;
  if (option.empty()) features.entries_ = Infer(example, options);
  for (const absl::string_view item :
       absl::StrSplit(option, ',', absl::SkipWhitespace())) {
    auto entry = ParseEntry(absl::StripAsciiWhitespace(item), example, options);
    if (!entry.ok()) return with_features(entry.status());
    features.entries_.push_back(*std::move(entry));
  }
  std::set<std::string> names;
  for (const Entry& entry : features.entries_) {
    names.insert(entry.field.spec().name);
  }
  if (names.empty() || names.size() != features.entries_.size() ||
      names.size() > kMaxFields) {
    return with_features(absl::InvalidArgumentError(
        absl::StrCat("option features: ", features.entries_.size(),
                     " fields, expected 1 to ", kMaxFields,
                     " of different names, as label:int64")));
  }
  return features;
}

std::vector<FieldSpec> TfFeatures::specs() const {
  std::vector<FieldSpec> specs;
  for (const Entry& entry : entries_) specs.push_back(entry.field.spec());
  return specs;
}

absl::Status TfFeatures::Probe(absl::Span<const uint8_t> example,
                               ImageSize at_least, SampleProbe& probe) const {
  DATASETD_ASSIGN_OR_RETURN(const TfExample parsed, TfExample::Parse(example));
  for (const Entry& entry : entries_) {
    DATASETD_ASSIGN_OR_RETURN(const auto* const feature, Find(entry, parsed));
    DATASETD_RETURN_IF_ERROR(
        entry.field.Probe(feature->bytes(), at_least, probe));
  }
  return absl::OkStatus();
}

absl::Status TfFeatures::Decode(
    absl::Span<const uint8_t> example, ImageSize at_least,
    absl::Span<const absl::Span<uint8_t>> fields) const {
  DATASETD_ASSIGN_OR_RETURN(const TfExample parsed, TfExample::Parse(example));
  for (size_t f = 0; f < entries_.size(); ++f) {
    const EncodedField& field = entries_[f].field;
    DATASETD_ASSIGN_OR_RETURN(const auto* const feature,
                              Find(entries_[f], parsed));
    if (entries_[f].kind == Kind::kBytes) {
      DATASETD_RETURN_IF_ERROR(
          field.Decode(feature->bytes(), at_least, fields[f]));
      continue;
    }
    if (SizeBytes(*feature) != static_cast<int64_t>(fields[f].size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("field '", field.spec().name, "': ", SizeBytes(*feature),
                       " bytes, expected ", fields[f].size()));
    }
    feature->CopyNumbers(fields[f]);
  }
  return absl::OkStatus();
}

}  // namespace datasetd
