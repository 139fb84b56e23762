#include "client/ctl/pretransforms_argument.h"

#include <fcntl.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"
#include "base/status_macros.h"
#include "proto/short_name.h"

namespace datasetd::ctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

void ExpandShortEnums(const Descriptor& descriptor, nlohmann::json* json);

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

// Replaces short names of enum values in `json`, a message of the type
// `descriptor`, by the full names: {"padding_mode": "reflect"} means
// "PADDING_MODE_REFLECT". Short names ignore case and may use - for _. Leaves
// everything else unchanged, valid or not.
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

absl::StatusOr<v1::Pipeline> ParseJson(absl::string_view text) {
  // A list becomes the transforms of a Pipeline.
  std::string message = text[0] == '['
                            ? absl::StrCat("{\"transforms\":", text, "}")
                            : std::string(text);
  // Invalid JSON is reported below.
  nlohmann::json json = nlohmann::json::parse(message, nullptr, false);
  if (!json.is_discarded()) {
    ExpandShortEnums(*v1::Pipeline::descriptor(), &json);
    message = json.dump();
  }
  v1::Pipeline pipeline;
  const auto status =
      google::protobuf::util::JsonStringToMessage(message, &pipeline);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pretransforms as JSON: ", std::string(status.message()),
                     "; expected a list such as [{\"resize\": "
                     "{\"size\": {\"height\": 32, \"width\": 32}}}]"));
  }
  return pipeline;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char part[4096];
  ssize_t size = file.has_value() ? 1 : -1;
  while (size > 0) {
    size = read(file.get(), part, sizeof(part));
    if (size > 0) text.append(part, static_cast<size_t>(size));
  }
  if (size < 0) {
    const int error = errno;
    return absl::Status(
        absl::ErrnoToStatusCode(error),
        absl::StrCat("--pretransforms: ", path, ": ", strerror(error)));
  }
  if (absl::StripAsciiWhitespace(text).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--pretransforms: ", path, " holds no transforms; write [] for none"));
  }
  return text;
}

}  // namespace

absl::StatusOr<v1::Pipeline> ParsePretransforms(const std::string& text) {
  std::string content = text;
  if (!text.empty() && text[0] == '@') {
    DATASETD_ASSIGN_OR_RETURN(content, ReadText(text.substr(1)));
  }
  const absl::string_view stripped = absl::StripAsciiWhitespace(content);
  if (stripped.empty() || stripped == "none") return v1::Pipeline();
  if (stripped[0] == '[' || stripped[0] == '{') return ParseJson(stripped);
  return absl::InvalidArgumentError(
      absl::StrCat("--pretransforms: '", stripped,
                   "' is neither a JSON list of Transform messages nor @FILE, "
                   "a file that holds one"));
}

}  // namespace datasetd::ctl
