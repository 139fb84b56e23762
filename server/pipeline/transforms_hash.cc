#include "server/pipeline/transforms_hash.h"

#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/digest.h"
#include "base/require.h"
#include "proto/short_name.h"

namespace datasetd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Part of the hash: change it when the text below changes.
constexpr const char* kVersion = "datasetd transforms 2";

// As the float32 that the kernel gets.
std::string Number(double value) {
  float number = static_cast<float>(value);
  if (number == 0.0f) number = 0.0f;  // maps -0 to 0
  uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad8));
}

// All bits of parameters that the host computes with count.
std::string Exact(double value) {
  if (value == 0.0) value = 0.0;  // maps -0 to 0
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad16));
}

// True if pixels outside the image are blended with those inside.
bool IsBilinear(const Message& op) {
  const FieldDescriptor* const mode =
      op.GetDescriptor()->FindFieldByName("interpolation");
  return mode != nullptr && op.GetReflection()->GetEnumValue(op, mode) ==
                                v1::INTERPOLATION_MODE_BILINEAR;
}

// Equal values of all channels are one value. None is 0, except that a bilinear
// op fades its edges out without a fill.
std::string Numbers(const Message& op, const FieldDescriptor& field) {
  const Reflection& values = *op.GetReflection();
  const bool is_float = field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
  std::vector<std::string> numbers;
  for (int i = 0; i < values.FieldSize(op, &field); ++i) {
    numbers.push_back(Number(is_float
                                 ? values.GetRepeatedFloat(op, &field, i)
                                 : values.GetRepeatedDouble(op, &field, i)));
  }
  if (numbers.empty()) return IsBilinear(op) ? "none" : Number(0);
  if (std::count(numbers.begin(), numbers.end(), numbers[0]) ==
      static_cast<std::ptrdiff_t>(numbers.size())) {
    return numbers[0];
  }
  std::string text;
  for (const std::string& number : numbers) {
    absl::StrAppend(&text, text.empty() ? "" : ",", number);
  }
  return text;
}

const FieldDescriptor& FindField(const Message& message,
                                 absl::string_view name) {
  const FieldDescriptor* const field =
      message.GetDescriptor()->FindFieldByName(std::string(name));
  Require(field != nullptr, "hash_text and used_with name parameters");
  return *field;
}

// True if the parameter has no effect beside the others.
bool IsUnused(const Message& op, const FieldDescriptor& field) {
  const v1::ParameterOptions& options =
      field.options().GetExtension(v1::parameter);
  if (options.used_with().empty()) return false;
  const auto& used = options.used_values();
  return std::find(used.begin(), used.end(),
                   op.GetReflection()->GetEnumValue(
                       op, &FindField(op, options.used_with()))) == used.end();
}

std::string TransformText(const v1::Transform& transform);
std::string Expand(const Message& message, absl::string_view text);

// The parameters of an op, or the members of one.
std::string MessageText(const Message& message) {
  const auto& type = *message.GetDescriptor();
  const std::string& text = type.options().GetExtension(v1::op).hash_text();
  if (!text.empty()) return Expand(message, text);
  std::string names;
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string& name = type.field(i)->name();
    absl::StrAppend(&names, i == 0 ? "" : " ", name, " {", name, "}");
  }
  return Expand(message, names);
}

std::string ValueText(const Message& message, const FieldDescriptor& field,
                      absl::string_view format) {
  const Reflection& values = *message.GetReflection();
  if (IsUnused(message, field)) return Number(0);
  if (field.message_type() == v1::Transform::descriptor()) {
    std::string text = "{\n";
    for (const v1::Transform& inner :
         values.GetRepeatedFieldRef<v1::Transform>(message, &field)) {
      absl::StrAppend(&text, TransformText(inner));
    }
    return absl::StrCat(text, "}");
  }
  if (field.is_repeated()) return Numbers(message, field);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = values.GetDouble(message, &field);
      return format == "float" ? Number(value) : Exact(value);
    }
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(values.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(values.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return values.GetBool(message, &field) ? "1" : "0";
    case FieldDescriptor::CPPTYPE_ENUM:
      return format == "name"
                 ? ShortName(*values.GetEnum(message, &field))
                 : absl::StrCat(values.GetEnumValue(message, &field));
    case FieldDescriptor::CPPTYPE_STRING: {
      // The length keeps it apart from the text that follows.
      const std::string text = values.GetString(message, &field);
      return absl::StrCat(text.size(), " ", text);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return values.HasField(message, &field)
                 ? MessageText(values.GetMessage(message, &field))
                 : "none";
    default:
      Require(false, "parameters have types that hashes know");
      return "";
  }
}

// Expands what is between two braces of a text; see OpOptions.hash_text.
std::string ExpandOne(const Message& message, absl::string_view text) {
  const size_t end = std::min(text.find_first_of(".:?"), text.size());
  const FieldDescriptor& field = FindField(message, text.substr(0, end));
  if (end == text.size()) return ValueText(message, field, "");
  const absl::string_view rest = text.substr(end + 1);
  const Reflection& values = *message.GetReflection();
  if (text[end] == '.') {
    return ExpandOne(values.GetMessage(message, &field), rest);
  }
  if (text[end] == ':') return ValueText(message, field, rest);
  const size_t bar = std::min(rest.find('|'), rest.size());
  if (values.GetBool(message, &field) && !IsUnused(message, field)) {
    return Expand(message, rest.substr(0, bar));
  }
  return bar == rest.size() ? "" : Expand(message, rest.substr(bar + 1));
}

std::string Expand(const Message& message, absl::string_view text) {
  std::string expanded;
  while (!text.empty()) {
    const size_t begin = std::min(text.find('{'), text.size());
    absl::StrAppend(&expanded, text.substr(0, begin));
    if (begin == text.size()) break;
    size_t end = begin + 1;
    for (int depth = 1; depth > 0; ++end) {
      Require(end < text.size(), "the braces of a hash_text are closed");
      if (text[end] == '{') ++depth;
      if (text[end] == '}') --depth;
    }
    absl::StrAppend(
        &expanded, ExpandOne(message, text.substr(begin + 1, end - begin - 2)));
    text.remove_prefix(end);
  }
  return expanded;
}

std::string TransformText(const v1::Transform& transform) {
  std::string text = absl::StrCat(TransformName(transform), " ",
                                  MessageText(*OpOf(transform)));
  if (transform.draw_id() != 0) {
    absl::StrAppend(&text, " draw ", transform.draw_id());
  }
  return absl::StrCat(text, "\n");
}

}  // namespace

std::string TransformsHash(absl::Span<const FieldPipeline> pipelines) {
  std::string text = absl::StrCat(kVersion, "\n");
  for (const FieldPipeline& pipeline : pipelines) {
    // The length separates names with line breaks from the text that follows.
    absl::StrAppend(&text, "field ", pipeline.field.size(), " ", pipeline.field,
                    pipeline.layout == Layout::kNhwc ? " NHWC\n" : " NCHW\n");
    for (const v1::Transform& transform : pipeline.transforms) {
      absl::StrAppend(&text, TransformText(transform));
    }
  }
  return HexDigest(text);
}

}  // namespace datasetd
