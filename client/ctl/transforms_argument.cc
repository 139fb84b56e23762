#include "client/ctl/transforms_argument.h"

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
#include "absl/strings/str_split.h"
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
        absl::StrCat("--transforms as JSON: ", std::string(status.message()),
                     "; expected a list such as [{\"random_crop\": "
                     "{\"height\": 32, \"width\": 32}}]"));
  }
  return pipeline;
}

void SetRange(double min, double max, v1::Range* range) {
  range->set_min(min);
  range->set_max(max);
}

void SetJitter(v1::ColorJitter* jitter) {
  SetRange(0.6, 1.4, jitter->mutable_brightness());
  SetRange(0.6, 1.4, jitter->mutable_contrast());
  SetRange(0.6, 1.4, jitter->mutable_saturation());
  SetRange(-0.1, 0.1, jitter->mutable_hue());
}

absl::StatusOr<v1::Pipeline> ParsePreset(absl::string_view text, int64_t height,
                                         int64_t width) {
  v1::Pipeline pipeline;
  if (text.empty() || text == "none") return pipeline;
  for (const absl::string_view name : absl::StrSplit(text, '-')) {
    v1::Transform* const transform = pipeline.add_transforms();
    if (name == "crop") {
      v1::RandomCrop* const crop = transform->mutable_random_crop();
      crop->set_height(static_cast<uint32_t>(height));
      crop->set_width(static_cast<uint32_t>(width));
      crop->set_padding_mode(v1::PADDING_MODE_REFLECT);
      // Reflection needs more pixels than it adds.
      const auto padding = static_cast<uint32_t>(
          std::min(std::max<int64_t>(std::max(height, width) / 8, 1),
                   std::min(height, width) - 1));
      crop->mutable_padding()->set_left(padding);
      crop->mutable_padding()->set_top(padding);
      crop->mutable_padding()->set_right(padding);
      crop->mutable_padding()->set_bottom(padding);
    } else if (name == "flip") {
      transform->mutable_random_horizontal_flip();
    } else if (name == "vflip") {
      transform->mutable_random_vertical_flip();
    } else if (name == "altflip") {
      transform->mutable_alternating_flip();
    } else if (name == "resizedcrop") {
      v1::Size* const size =
          transform->mutable_random_resized_crop()->mutable_size();
      size->set_height(static_cast<uint32_t>(height));
      size->set_width(static_cast<uint32_t>(width));
    } else if (name == "rotate") {
      v1::RandomRotation* const rotation = transform->mutable_random_rotation();
      rotation->set_interpolation(v1::INTERPOLATION_MODE_BILINEAR);
      SetRange(-10, 10, rotation->mutable_degrees());
    } else if (name == "jitter") {
      SetJitter(transform->mutable_color_jitter());
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "--transforms: no preset '", name, "' in '", text,
          "'; expected none, or crop, flip, vflip, altflip, resizedcrop, "
          "rotate, jitter joined by '-', or JSON, or @FILE"));
    }
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
        absl::StrCat("--transforms: ", path, ": ", strerror(error)));
  }
  if (absl::StripAsciiWhitespace(text).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--transforms: ", path, " holds no transforms; write [] for none"));
  }
  return text;
}

std::string NumberOpName(const v1::Transform& transform) {
  if (transform.has_to_dtype()) return "to_dtype";
  if (transform.has_normalize()) return "normalize";
  return "";
}

}  // namespace

absl::StatusOr<v1::Pipeline> ParseTransforms(const std::string& text,
                                             int64_t height, int64_t width) {
  std::string content = text;
  if (!text.empty() && text[0] == '@') {
    DATASETD_ASSIGN_OR_RETURN(content, ReadText(text.substr(1)));
  }
  const absl::string_view stripped = absl::StripAsciiWhitespace(content);
  if (!stripped.empty() && (stripped[0] == '[' || stripped[0] == '{')) {
    return ParseJson(stripped);
  }
  return ParsePreset(stripped, height, width);
}

std::vector<std::string> TakeNumberOps(v1::Pipeline* pipeline) {
  std::vector<std::string> names;
  while (pipeline->transforms_size() > 0) {
    const std::string name =
        NumberOpName(pipeline->transforms(pipeline->transforms_size() - 1));
    if (name.empty()) break;
    names.insert(names.begin(), name);
    pipeline->mutable_transforms()->RemoveLast();
  }
  return names;
}

}  // namespace datasetd::ctl
