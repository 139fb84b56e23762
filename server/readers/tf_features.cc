#include "server/readers/tf_features.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cuda/status_macros.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

constexpr size_t kMaxFields = 64;

absl::StatusOr<tf_example::Example> Parse(absl::Span<const uint8_t> bytes) {
  tf_example::Example example;
  if (example.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return example;
  }
  return absl::DataLossError("the record is no tf.train.Example");
}

std::string Describe(const tf_example::Example& example) {
  std::set<std::string> texts;
  for (const auto& [name, feature] : example.features().feature()) {
    const char* const kind = feature.has_bytes_list()   ? "bytes"
                             : feature.has_int64_list() ? "int64"
                             : feature.has_float_list() ? "float"
                                                        : "nothing";
    const int count = feature.bytes_list().value_size() +
                      feature.int64_list().value_size() +
                      feature.float_list().value_size();
    texts.insert(absl::StrCat(absl::Utf8SafeCHexEscape(name), ": ", count, " ",
                              kind));
  }
  std::string all;
  for (const std::string& text : texts) {
    if (all.size() > 1000) return absl::StrCat(all, ", ...");
    absl::StrAppend(&all, all.empty() ? "" : ", ", text);
  }
  return all.empty() ? "no feature" : all;
}

template <typename T>
absl::Span<const uint8_t> AsBytes(
    const google::protobuf::RepeatedField<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()),
          static_cast<size_t>(values.size()) * sizeof(T)};
}

// What a name can hold, of a feature's.
std::string FieldNameOf(absl::string_view feature) {
  std::string name(feature);
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

}  // namespace

absl::StatusOr<absl::Span<const uint8_t>> TfFeatures::BytesOf(
    const Entry& entry, const tf_example::Example& example) {
  const auto found = example.features().feature().find(entry.feature);
  const std::string where =
      absl::StrCat("feature '", absl::Utf8SafeCHexEscape(entry.feature), "'");
  if (found == example.features().feature().end()) {
    return absl::InvalidArgumentError(absl::StrCat(where, " is missing"));
  }
  const tf_example::Feature& feature = found->second;
  switch (entry.source) {
    case Source::kBytes:
      if (feature.bytes_list().value_size() == 1) {
        const std::string& bytes = feature.bytes_list().value(0);
        return absl::Span<const uint8_t>(
            reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      }
      return absl::InvalidArgumentError(
          absl::StrCat(where, " holds not one string of bytes"));
    case Source::kInt64s:
      if (feature.has_int64_list()) {
        return AsBytes(feature.int64_list().value());
      }
      return absl::InvalidArgumentError(absl::StrCat(where, " is no int64 list"));
    case Source::kFloats:
      break;
  }
  if (feature.has_float_list()) return AsBytes(feature.float_list().value());
  return absl::InvalidArgumentError(absl::StrCat(where, " is no float list"));
}

absl::StatusOr<TfFeatures::Entry> TfFeatures::ParseEntry(
    absl::string_view item, const tf_example::Example& first,
    const ImageOptions& options) {
  const std::string where = absl::StrCat(
      "option features: '", absl::Utf8SafeCHexEscape(item), "'");
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
    DATASETD_ASSIGN_OR_RETURN(const auto bytes, BytesOf(entry, first));
    DATASETD_ASSIGN_OR_RETURN(
        entry.field, EncodedField::Make(name, EncodedField::Kind::kImage, bytes,
                                        options));
    return entry;
  }
  absl::string_view dtype = kind.substr(0, kind.find('['));
  absl::string_view shape = kind.substr(dtype.size());
  if (dtype == "float") dtype = "float32";
  if (!shape.empty() &&
      (!absl::ConsumePrefix(&shape, "[") || !absl::ConsumeSuffix(&shape, "]"))) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ", expected a kind as image, int64, float32[16]"));
  }
  FieldSpec spec = {.name = name};
  DATASETD_ASSIGN_OR_RETURN(spec.dtype, ParseDtype(dtype, where));
  DATASETD_ASSIGN_OR_RETURN(spec.shape, ParseShape(shape, where));
  entry.field = EncodedField::MakeRaw(std::move(spec));
  // The option may speak of bytes or of a list: the first example decides.
  const auto found = first.features().feature().find(entry.feature);
  if (found != first.features().feature().end() &&
      !found->second.has_bytes_list()) {
    if (dtype == "int64") entry.source = Source::kInt64s;
    if (dtype == "float32") entry.source = Source::kFloats;
  }
  DATASETD_ASSIGN_OR_RETURN(const auto bytes, BytesOf(entry, first));
  if (static_cast<int64_t>(bytes.size()) == entry.field.spec().sample_bytes()) {
    return entry;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", bytes.size(), " bytes in the first example, ",
                   "expected ", entry.field.spec().sample_bytes()));
}

std::vector<TfFeatures::Entry> TfFeatures::Infer(
    const tf_example::Example& first, const ImageOptions& options) {
  std::map<std::string, const tf_example::Feature*> sorted;
  for (const auto& [name, feature] : first.features().feature()) {
    sorted[name] = &feature;
  }
  std::vector<Entry> entries;
  for (const auto& [name, feature] : sorted) {
    Entry entry = {.feature = name};
    FieldSpec spec = {.name = FieldNameOf(name)};
    if (!IsFieldName(spec.name)) continue;
    if (feature->bytes_list().value_size() == 1) {
      const auto bytes = BytesOf(entry, first);
      auto field = EncodedField::Make(spec.name, EncodedField::Kind::kImage,
                                      *bytes, options);
      if (!field.ok()) continue;
      entry.field = *std::move(field);
    } else {
      const bool is_int = feature->has_int64_list();
      const int count = is_int ? feature->int64_list().value_size()
                               : feature->float_list().value_size();
      if (count == 0) continue;
      entry.source = is_int ? Source::kInt64s : Source::kFloats;
      spec.dtype = is_int ? Dtype::kInt64 : Dtype::kFloat32;
      if (count > 1) spec.shape = {count};
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
  DATASETD_ASSIGN_OR_RETURN(const tf_example::Example example, Parse(first));
  const auto with_features = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat(status.message(),
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
  DATASETD_ASSIGN_OR_RETURN(const tf_example::Example parsed, Parse(example));
  probe.decode_bytes += static_cast<int64_t>(parsed.SpaceUsedLong());
  for (const Entry& entry : entries_) {
    DATASETD_ASSIGN_OR_RETURN(const auto bytes, BytesOf(entry, parsed));
    DATASETD_RETURN_IF_ERROR(entry.field.Probe(bytes, at_least, probe));
  }
  return absl::OkStatus();
}

absl::Status TfFeatures::Decode(
    absl::Span<const uint8_t> example, ImageSize at_least,
    absl::Span<const absl::Span<uint8_t>> fields) const {
  DATASETD_ASSIGN_OR_RETURN(const tf_example::Example parsed, Parse(example));
  for (size_t f = 0; f < entries_.size(); ++f) {
    DATASETD_ASSIGN_OR_RETURN(const auto bytes, BytesOf(entries_[f], parsed));
    DATASETD_RETURN_IF_ERROR(
        entries_[f].field.Decode(bytes, at_least, fields[f]));
  }
  return absl::OkStatus();
}

}  // namespace datasetd
