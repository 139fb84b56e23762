#include "server/config/yaml_to_proto.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "proto/short_name.h"

namespace datasetd {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::EnumValueDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

constexpr size_t kMaxTextBytes = 1 << 20;
constexpr int kMaxNodes = 100'000;

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::Utf8SafeCHexEscape(text.substr(0, 100)), "'");
}

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : absl::StrCat(path, ".", key);
}

bool IsDuration(const Descriptor& descriptor) {
  return &descriptor == google::protobuf::Duration::descriptor();
}

// Maps one document. Throws yaml-cpp's exceptions.
class Mapper {
 public:
  explicit Mapper(absl::string_view source_name) : source_name_(source_name) {}

  absl::Status MapMessage(const YAML::Node& node, const std::string& path,
                          Message* message) {
    DATASETD_RETURN_IF_ERROR(CountNode(node));
    const Descriptor& descriptor = *message->GetDescriptor();
    if (IsDuration(descriptor)) return MapDuration(node, path, message);
    if (node.IsNull()) return absl::OkStatus();
    if (!node.IsMap()) {
      return Error(node, path.empty() ? "the file" : path,
                   " must be a mapping of keys: ", KnownKeys(descriptor));
    }
    std::set<std::string> seen;
    for (const auto& entry : node) {
      DATASETD_ASSIGN_OR_RETURN(const std::string key,
                                MapKey(entry.first, path, &seen));
      const FieldDescriptor* field = descriptor.FindFieldByName(key);
      if (field == nullptr) {
        return Error(entry.first, "unknown key ", Quoted(key),
                     path.empty() ? "" : " in ", path,
                     "; known keys: ", KnownKeys(descriptor));
      }
      const auto* oneof = field->real_containing_oneof();
      if (oneof != nullptr &&
          message->GetReflection()->HasOneof(*message, oneof)) {
        return Error(entry.first, Join(path, key),
                     " is given beside another of which only one may be");
      }
      DATASETD_RETURN_IF_ERROR(
          MapField(entry.second, Join(path, key), *field, message));
    }
    return absl::OkStatus();
  }

  template <typename... Parts>
  absl::Status Error(const YAML::Node& node, const Parts&... parts) const {
    return ErrorAt(node.Mark(), parts...);
  }
  template <typename... Parts>
  absl::Status ErrorAt(const YAML::Mark& mark, const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(
        source_name_, ": ",
        mark.is_null() ? "" : absl::StrCat("line ", mark.line + 1, ": "),
        parts...));
  }

 private:
  static std::string KnownKeys(const Descriptor& descriptor) {
    std::vector<std::string> names;
    for (int i = 0; i < descriptor.field_count(); ++i) {
      names.push_back(descriptor.field(i)->name());
    }
    return names.empty() ? "none" : absl::StrJoin(names, ", ");
  }

  // Limits the nodes, since aliases can expand a small text.
  absl::Status CountNode(const YAML::Node& node) {
    if (++num_nodes_ <= kMaxNodes) return absl::OkStatus();
    return Error(node, "more than ", kMaxNodes, " values");
  }

  absl::StatusOr<std::string> MapKey(const YAML::Node& node,
                                     const std::string& path,
                                     std::set<std::string>* seen) {
    DATASETD_RETURN_IF_ERROR(CountNode(node));
    if (!node.IsScalar()) {
      return Error(node, "a key", path.empty() ? "" : " in ", path,
                   " is no plain word");
    }
    if (!seen->insert(node.Scalar()).second) {
      return Error(node, "key ", Quoted(node.Scalar()),
                   path.empty() ? "" : " in ", path, " is given twice");
    }
    return node.Scalar();
  }

  absl::Status MapField(const YAML::Node& node, const std::string& path,
                        const FieldDescriptor& field, Message* message) {
    DATASETD_RETURN_IF_ERROR(CountNode(node));
    const Reflection& reflection = *message->GetReflection();
    if (node.IsNull() && field.real_containing_oneof() == nullptr) {
      return absl::OkStatus();
    }
    if (field.is_map()) return MapMap(node, path, field, message);
    if (field.is_repeated()) {
      if (!node.IsSequence()) {
        return Error(node, path, " must be a list, as [a, b]");
      }
      for (size_t i = 0; i < node.size(); ++i) {
        const std::string element_path = absl::StrCat(path, "[", i, "]");
        if (node[i].IsNull()) {
          return Error(node, element_path, " has no value");
        }
        DATASETD_RETURN_IF_ERROR(
            MapSingle(node[i], element_path, field,
                      field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                          ? reflection.AddMessage(message, &field)
                          : message));
      }
      return absl::OkStatus();
    }
    return MapSingle(node, path, field,
                     field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                         ? reflection.MutableMessage(message, &field)
                         : message);
  }

  // `target` is the field's message, or the message that contains the scalar.
  absl::Status MapSingle(const YAML::Node& node, const std::string& path,
                         const FieldDescriptor& field, Message* target) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return MapMessage(node, path, target);
    }
    return MapScalar(node, path, field, target);
  }

  absl::Status MapMap(const YAML::Node& node, const std::string& path,
                      const FieldDescriptor& field, Message* message) {
    if (!node.IsMap()) {
      return Error(node, path, " must be a mapping, as {name: value}");
    }
    const Descriptor& entry_type = *field.message_type();
    std::set<std::string> seen;
    for (const auto& pair : node) {
      DATASETD_ASSIGN_OR_RETURN(const std::string key,
                                MapKey(pair.first, path, &seen));
      Message* entry = message->GetReflection()->AddMessage(message, &field);
      DATASETD_RETURN_IF_ERROR(
          MapScalar(pair.first, path, *entry_type.map_key(), entry));
      DATASETD_RETURN_IF_ERROR(MapField(pair.second, Join(path, key),
                                        *entry_type.map_value(), entry));
    }
    return absl::OkStatus();
  }

  absl::Status MapDuration(const YAML::Node& node, const std::string& path,
                           Message* message) {
    absl::Duration duration;
    if (!node.IsScalar() || !absl::ParseDuration(node.Scalar(), &duration) ||
        duration == absl::InfiniteDuration() ||
        duration == -absl::InfiniteDuration()) {
      return Error(node, path, " is ",
                   node.IsScalar() ? Quoted(node.Scalar()) : "no scalar",
                   ", expected a duration with its unit, as 5s or 500ms");
    }
    const Reflection& reflection = *message->GetReflection();
    const Descriptor& descriptor = *message->GetDescriptor();
    absl::Duration rest;
    const int64_t seconds =
        absl::IDivDuration(duration, absl::Seconds(1), &rest);
    reflection.SetInt64(message, descriptor.FindFieldByName("seconds"),
                        seconds);
    reflection.SetInt32(message, descriptor.FindFieldByName("nanos"),
                        static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
    return absl::OkStatus();
  }

  absl::Status MapScalar(const YAML::Node& node, const std::string& path,
                         const FieldDescriptor& field, Message* message) {
    if (!node.IsScalar()) return Error(node, path, " must be one value");
    const std::string& text = node.Scalar();
    if (text.find('\0') != std::string::npos) {
      return Error(node, path, " is ", Quoted(text), ", which holds a NUL");
    }
    const auto put = [&](auto add, auto set, const auto& value) {
      const Reflection& reflection = *message->GetReflection();
      (reflection.*(field.is_repeated() ? add : set))(message, &field, value);
      return absl::OkStatus();
    };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return put(&Reflection::AddString, &Reflection::SetString, text);
      case FieldDescriptor::CPPTYPE_BOOL: {
        if (text != "true" && text != "false") {
          return Error(node, path, " is ", Quoted(text),
                       ", expected true or false");
        }
        return put(&Reflection::AddBool, &Reflection::SetBool, text == "true");
      }
      case FieldDescriptor::CPPTYPE_UINT32: {
        DATASETD_ASSIGN_OR_RETURN(const auto value,
                                  ParseInteger<uint32_t>(node, path));
        return put(&Reflection::AddUInt32, &Reflection::SetUInt32, value);
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        DATASETD_ASSIGN_OR_RETURN(const auto value,
                                  ParseInteger<uint64_t>(node, path));
        return put(&Reflection::AddUInt64, &Reflection::SetUInt64, value);
      }
      case FieldDescriptor::CPPTYPE_INT32: {
        DATASETD_ASSIGN_OR_RETURN(const auto value,
                                  ParseInteger<int32_t>(node, path));
        return put(&Reflection::AddInt32, &Reflection::SetInt32, value);
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        DATASETD_ASSIGN_OR_RETURN(const auto value,
                                  ParseInteger<int64_t>(node, path));
        return put(&Reflection::AddInt64, &Reflection::SetInt64, value);
      }
      case FieldDescriptor::CPPTYPE_FLOAT: {
        DATASETD_ASSIGN_OR_RETURN(const double value, ParseReal(node, path));
        const float rounded = static_cast<float>(value);
        if (!std::isfinite(rounded)) {
          return Error(node, path, " is ", Quoted(text),
                       ", out of the range of float32");
        }
        return put(&Reflection::AddFloat, &Reflection::SetFloat, rounded);
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        DATASETD_ASSIGN_OR_RETURN(const double value, ParseReal(node, path));
        return put(&Reflection::AddDouble, &Reflection::SetDouble, value);
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        DATASETD_ASSIGN_OR_RETURN(const EnumValueDescriptor* value,
                                  ParseEnum(node, path, *field.enum_type()));
        return put(&Reflection::AddEnum, &Reflection::SetEnum, value);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        break;
    }
    return Error(node, path, " cannot be set from YAML");
  }

  template <typename T>
  absl::StatusOr<T> ParseInteger(const YAML::Node& node,
                                 const std::string& path) const {
    T value;
    if (absl::SimpleAtoi(node.Scalar(), &value)) return value;
    return Error(node, path, " is ", Quoted(node.Scalar()),
                 ", expected a whole number from ",
                 std::numeric_limits<T>::min(), " to ",
                 std::numeric_limits<T>::max());
  }

  absl::StatusOr<double> ParseReal(const YAML::Node& node,
                                   const std::string& path) const {
    double value;
    if (absl::SimpleAtod(node.Scalar(), &value) && std::isfinite(value)) {
      return value;
    }
    return Error(node, path, " is ", Quoted(node.Scalar()),
                 ", expected a number");
  }

  absl::StatusOr<const EnumValueDescriptor*> ParseEnum(
      const YAML::Node& node, const std::string& path,
      const EnumDescriptor& descriptor) const {
    std::string given = absl::AsciiStrToLower(node.Scalar());
    std::replace(given.begin(), given.end(), '-', '_');
    std::vector<std::string> names;
    for (int i = 1; i < descriptor.value_count(); ++i) {
      const EnumValueDescriptor* const value = descriptor.value(i);
      names.push_back(ShortName(*value));
      if (given == names.back() ||
          given == absl::AsciiStrToLower(value->name())) {
        return value;
      }
    }
    return Error(node, path, " is ", Quoted(node.Scalar()),
                 ", expected one of: ", absl::StrJoin(names, ", "));
  }

  const std::string source_name_;
  int num_nodes_ = 0;
};

// Counts the documents of a text.
class DocumentCounter : public YAML::EventHandler {
 public:
  int num_documents() const { return num_documents_; }
  const YAML::Mark& last_mark() const { return last_mark_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    ++num_documents_;
    last_mark_ = mark;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int num_documents_ = 0;
  YAML::Mark last_mark_;
};

}  // namespace

absl::Status YamlToProto(absl::string_view yaml_text,
                         absl::string_view source_name, Message* message) {
  Mapper mapper(source_name);
  const YAML::Mark nowhere = YAML::Mark::null_mark();
  if (yaml_text.size() > kMaxTextBytes) {
    return mapper.ErrorAt(nowhere, yaml_text.size(),
                          " bytes, expected at most ", kMaxTextBytes);
  }
  // yaml-cpp guesses other encodings from zeros and byte order marks, and
  // accepts invalid UTF-8.
  const size_t valid =
      std::min(ValidUtf8Prefix(yaml_text), yaml_text.find('\0'));
  if (valid < yaml_text.size()) {
    return mapper.ErrorAt(
        nowhere, "line ",
        1 + std::count(yaml_text.begin(), yaml_text.begin() + valid, '\n'),
        ": not UTF-8 text, at offset ", valid);
  }
  // yaml-cpp throws; no exception leaves this function.
  try {
    const std::string text(yaml_text);
    DocumentCounter counter;
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    // Stops after two: YAML::LoadAll never ends on inputs such as ",t".
    while (counter.num_documents() < 2 && parser.HandleNextDocument(counter)) {
    }
    if (counter.num_documents() > 1) {
      return mapper.ErrorAt(counter.last_mark(),
                            "another document, expected one; is there a --- or "
                            "something behind the end?");
    }
    return mapper.MapMessage(YAML::Load(text), "", message);
  } catch (const YAML::Exception& exception) {
    return mapper.ErrorAt(exception.mark, "not valid YAML: ", exception.msg);
  } catch (const std::exception& exception) {
    return mapper.ErrorAt(nowhere, "not readable as YAML: ", exception.what());
  }
}

}  // namespace datasetd
