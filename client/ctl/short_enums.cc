#include "client/ctl/short_enums.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "proto/short_name.h"

namespace datasetd::ctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

void ExpandValue(const FieldDescriptor& field, nlohmann::json* value) {
  if (field.message_type() != nullptr) {
    ExpandShortEnums(*field.message_type(), value);
    return;
  }
  if (field.enum_type() == nullptr || !value->is_string()) return;
  std::string name = absl::AsciiStrToUpper(value->get<std::string>());
  std::replace(name.begin(), name.end(), '-', '_');
  name = NamePrefix(*field.enum_type()) + name;
  if (field.enum_type()->FindValueByName(name) != nullptr) *value = name;
}

}  // namespace

void ExpandShortEnums(const Descriptor& descriptor, nlohmann::json* json) {
  if (!json->is_object()) return;
  for (auto& [key, value] : json->items()) {
    const FieldDescriptor* field = descriptor.FindFieldByName(key);
    if (field == nullptr) field = descriptor.FindFieldByCamelcaseName(key);
    if (field == nullptr || field->is_map()) continue;
    if (!field->is_repeated()) {
      ExpandValue(*field, &value);
    } else if (value.is_array()) {
      for (nlohmann::json& element : value) ExpandValue(*field, &element);
    }
  }
}

}  // namespace datasetd::ctl
