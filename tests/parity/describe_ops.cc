#include "tests/parity/describe_ops.h"

#include <google/protobuf/util/json_util.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "proto/short_name.h"
#include "tests/testing/ops.h"

namespace datasetd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using json = nlohmann::ordered_json;

void Describe(const FieldDescriptor& field, const std::string& path,
              const v1::ParameterOptions& options, json* parameters) {
  const Descriptor* const type = field.message_type();
  if (type != nullptr && !field.is_repeated()) {
    // The range of a Range or Point is that of its parts.
    const bool is_shared =
        type == v1::Range::descriptor() || type == v1::Point::descriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor& part = *type->field(i);
      Describe(part, absl::StrCat(path, ".", part.name()),
               is_shared ? options : part.options().GetExtension(v1::parameter),
               parameters);
    }
    return;
  }
  json& parameter = (*parameters)[path];
  parameter = {
      {"type", type != nullptr                ? type->name()
               : field.enum_type() != nullptr ? field.enum_type()->name()
                                              : field.type_name()},
      {"is_repeated", field.is_repeated()}};
  if (options.has_min()) parameter["min"] = options.min();
  if (options.has_max()) parameter["max"] = options.max();
  if (options.has_above()) parameter["above"] = options.above();
  for (const int32_t value : options.values()) {
    if (field.enum_type() == nullptr) parameter["choices"].push_back(value);
  }
  if (field.enum_type() == nullptr) return;
  for (int i = 1; i < field.enum_type()->value_count(); ++i) {
    const auto& value = *field.enum_type()->value(i);
    bool is_allowed = options.values().empty();
    for (const int32_t number : options.values()) {
      is_allowed |= number == value.number();
    }
    if (is_allowed) parameter["choices"].push_back(value.name());
  }
}

json Defaults(const FieldDescriptor& op) {
  const v1::Transform transform = testing::Op(absl::StrCat(op.name(), " {}"));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  Require(google::protobuf::util::MessageToJsonString(*OpOf(transform), &text,
                                                      options)
              .ok(),
          "the defaults of an op are JSON");
  return json::parse(text);
}

}  // namespace

nlohmann::ordered_json DescribeOps() {
  json all;
  const auto& ops = *v1::Transform::descriptor()->FindOneofByName("op");
  for (int i = 0; i < ops.field_count(); ++i) {
    const FieldDescriptor& op = *ops.field(i);
    const Descriptor& type = *op.message_type();
    json parameters = json::object();
    const v1::OpOptions& options = type.options().GetExtension(v1::op);
    for (int f = 0; f < type.field_count(); ++f) {
      const FieldDescriptor& field = *type.field(f);
      Describe(field, field.name(), field.options().GetExtension(v1::parameter),
               &parameters);
    }
    all[op.name()] = {
        {"name", type.name()},
        {"family", ShortName(*v1::OpFamily_descriptor()->FindValueByNumber(
                       options.family()))},
        {"is_random", options.is_random()},
        {"defaults", Defaults(op)},
        {"parameters", parameters}};
  }
  return all;
}

}  // namespace datasetd
