#include "server/pipeline/ops/transform.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "proto/short_name.h"

namespace datasetd {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

absl::Status Invalid(absl::string_view name, absl::string_view value,
                     absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ": it must be ", expected));
}

// Integers are written with all their digits.
std::string NumberText(double value) {
  constexpr double kMaxExact = 9e15;
  if (std::abs(value) < kMaxExact && value == std::trunc(value)) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  return absl::StrCat(value);
}

// For example "nearest, bilinear or bicubic".
std::string ListText(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) absl::StrAppend(&text, i + 1 < names.size() ? ", " : " or ");
    absl::StrAppend(&text, names[i]);
  }
  return text;
}

bool Allows(const v1::ParameterOptions& options, int64_t value) {
  return options.values().empty() ||
         std::find(options.values().begin(), options.values().end(), value) !=
             options.values().end();
}

absl::Status CheckNumber(absl::string_view name, double value,
                         const v1::ParameterOptions& options) {
  const double low = options.has_min() ? options.min() : 0.0;
  if (std::isfinite(value) && (!options.has_min() || value >= low) &&
      (!options.has_max() || value <= options.max()) &&
      (!options.has_above() || value > options.above())) {
    return absl::OkStatus();
  }
  std::string expected = "finite";
  if (options.has_max()) {
    expected = absl::StrCat("within ", NumberText(low), "..",
                            NumberText(options.max()),
                            options.unit().empty() ? "" : " ", options.unit());
  } else if (options.has_above()) {
    expected =
        absl::StrCat("above ", NumberText(options.above()), ", and finite");
  }
  return Invalid(name, NumberText(value), expected);
}

absl::Status CheckInteger(absl::string_view name, int64_t value,
                          const v1::ParameterOptions& options) {
  if (Allows(options, value)) {
    return CheckNumber(name, static_cast<double>(value), options);
  }
  std::vector<std::string> allowed;
  for (const int32_t number : options.values()) {
    allowed.push_back(absl::StrCat(number));
  }
  return Invalid(name, absl::StrCat(value), ListText(allowed));
}

absl::Status CheckEnum(absl::string_view name, int value,
                       const EnumDescriptor& type,
                       const v1::ParameterOptions& options) {
  const auto* const found = type.FindValueByNumber(value);
  if (found != nullptr && value != 0 && Allows(options, value)) {
    return absl::OkStatus();
  }
  std::vector<std::string> allowed;
  for (int i = 0; i < type.value_count(); ++i) {
    const int number = type.value(i)->number();
    if (number == 0 || !Allows(options, number)) continue;
    allowed.push_back(ShortName(*type.value(i)));
  }
  return Invalid(name,
                 value == 0         ? "not set"
                 : found == nullptr ? absl::StrCat(value)
                                    : ShortName(*found),
                 ListText(allowed));
}

// The kernels take float32; casting a value outside its range is undefined.
absl::Status CheckElement(absl::string_view name, int index, double value) {
  if (std::isfinite(value) &&
      std::abs(value) <= std::numeric_limits<float>::max()) {
    return absl::OkStatus();
  }
  return Invalid(name, absl::StrCat(value, " in channel ", index),
                 "a finite float32");
}

absl::Status CheckRepeated(const Message& message,
                           const FieldDescriptor& field) {
  const Reflection& values = *message.GetReflection();
  for (int i = 0; i < values.FieldSize(message, &field); ++i) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      DATASETD_RETURN_IF_ERROR(CheckElement(
          field.name(), i, values.GetRepeatedFloat(message, &field, i)));
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      DATASETD_RETURN_IF_ERROR(CheckElement(
          field.name(), i, values.GetRepeatedDouble(message, &field, i)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFields(const Message& message, absl::string_view prefix);

absl::Status CheckField(const Message& message, const FieldDescriptor& field,
                        const v1::ParameterOptions& options,
                        const std::string& name) {
  const Reflection& values = *message.GetReflection();
  if (field.is_repeated()) return CheckRepeated(message, field);
  if (field.has_presence() && !values.HasField(message, &field)) {
    return absl::OkStatus();
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CheckNumber(name, values.GetDouble(message, &field), options);
    case FieldDescriptor::CPPTYPE_INT32:
      return CheckInteger(name, values.GetInt32(message, &field), options);
    case FieldDescriptor::CPPTYPE_UINT32:
      return CheckInteger(name, values.GetUInt32(message, &field), options);
    case FieldDescriptor::CPPTYPE_ENUM:
      return CheckEnum(name, values.GetEnumValue(message, &field),
                       *field.enum_type(), options);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
    default:
      return absl::OkStatus();
  }
  const Message& part = values.GetMessage(message, &field);
  if (const auto* const range =
          google::protobuf::DynamicCastToGenerated<v1::Range>(&part)) {
    DATASETD_RETURN_IF_ERROR(CheckNumber(name, range->min(), options));
    DATASETD_RETURN_IF_ERROR(CheckNumber(name, range->max(), options));
    if (range->min() <= range->max()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " goes from ", range->min(), " to ", range->max(),
                     ": the first must not be larger"));
  }
  if (const auto* const point =
          google::protobuf::DynamicCastToGenerated<v1::Point>(&part)) {
    DATASETD_RETURN_IF_ERROR(CheckNumber(name, point->x(), options));
    return CheckNumber(name, point->y(), options);
  }
  return CheckFields(part, absl::StrCat(name, "."));
}

absl::Status CheckFields(const Message& message, absl::string_view prefix) {
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    DATASETD_RETURN_IF_ERROR(
        CheckField(message, field, field.options().GetExtension(v1::parameter),
                   absl::StrCat(prefix, field.name())));
  }
  return absl::OkStatus();
}

const FieldDescriptor* OpField(const v1::Transform& transform) {
  return transform.op_case() == v1::Transform::OP_NOT_SET
             ? nullptr
             : v1::Transform::descriptor()->FindFieldByNumber(
                   transform.op_case());
}

absl::Status CheckAll(const Transforms& transforms, absl::string_view where);

absl::Status CheckWithInner(const v1::Transform& transform) {
  DATASETD_RETURN_IF_ERROR(CheckTransform(transform));
  if (!transform.has_random_apply()) return absl::OkStatus();
  const auto& inner = transform.random_apply().transforms();
  return CheckAll({inner.begin(), inner.end()}, "transforms");
}

absl::Status CheckAll(const Transforms& transforms, absl::string_view where) {
  for (size_t i = 0; i < transforms.size(); ++i) {
    const absl::Status status = CheckWithInner(transforms[i]);
    if (status.ok()) continue;
    return absl::Status(
        status.code(),
        absl::StrCat(where, "[", i, "] ", TransformName(transforms[i]), ": ",
                     status.message()));
  }
  return absl::OkStatus();
}

int CountTransforms(
    const google::protobuf::RepeatedPtrField<v1::Transform>& transforms) {
  int count = transforms.size();
  for (const v1::Transform& transform : transforms) {
    count += CountTransforms(transform.random_apply().transforms());
  }
  return count;
}

}  // namespace

absl::StatusOr<Transforms> CompleteTransforms(
    const google::protobuf::RepeatedPtrField<v1::Transform>& transforms,
    absl::string_view where) {
  // A message holds a million ops, whose completion takes seconds.
  const int count = CountTransforms(transforms);
  if (count > kMaxTransforms) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", count,
                     " transforms, those inside others counted; there "
                     "can be ",
                     kMaxTransforms));
  }
  Transforms complete(transforms.begin(), transforms.end());
  for (v1::Transform& transform : complete) FillDefaults(&transform);
  DATASETD_RETURN_IF_ERROR(CheckAll(complete, where));
  return complete;
}

void FillDefaults(v1::Transform* transform) {
  const FieldDescriptor* const op = OpField(*transform);
  if (op == nullptr) return;
  Message* const message =
      transform->GetReflection()->MutableMessage(transform, op);
  for (int i = 0; i < op->message_type()->field_count(); ++i) {
    const FieldDescriptor& field = *op->message_type()->field(i);
    const std::string& value =
        field.options().GetExtension(v1::parameter).default_();
    if (value.empty() || message->GetReflection()->HasField(*message, &field)) {
      continue;
    }
    Require(google::protobuf::TextFormat::MergeFromString(
                absl::StrCat(field.name(), ": ", value), message),
            "the default of a parameter can be parsed");
  }
  if (!transform->has_random_apply()) return;
  for (v1::Transform& inner :
       *transform->mutable_random_apply()->mutable_transforms()) {
    FillDefaults(&inner);
  }
}

absl::Status CheckTransform(const v1::Transform& transform) {
  const Message* const op = OpOf(transform);
  if (op == nullptr) {
    return absl::InvalidArgumentError(
        "unknown transform; this daemon may be older than the client");
  }
  DATASETD_RETURN_IF_ERROR(
      CheckInteger("draw_id", transform.draw_id(),
                   v1::Transform::descriptor()
                       ->FindFieldByNumber(v1::Transform::kDrawIdFieldNumber)
                       ->options()
                       .GetExtension(v1::parameter)));
  return CheckFields(*op, "");
}

const Message* OpOf(const v1::Transform& transform) {
  const FieldDescriptor* const op = OpField(transform);
  return op == nullptr ? nullptr
                       : &transform.GetReflection()->GetMessage(transform, op);
}

std::string TransformName(const v1::Transform& transform) {
  const FieldDescriptor* const op = OpField(transform);
  return op == nullptr ? "(none)" : op->message_type()->name();
}

const v1::OpOptions& OptionsOf(const v1::Transform& transform) {
  const FieldDescriptor* const op = OpField(transform);
  Require(op != nullptr, "the transform has an op");
  return op->message_type()->options().GetExtension(v1::op);
}

}  // namespace datasetd
