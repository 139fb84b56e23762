// What datasetctl prints: messages as JSON, tables, and numbers for people.

#ifndef DATASETD_CLIENT_CTL_OUTPUT_H_
#define DATASETD_CLIENT_CTL_OUTPUT_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace datasetd::ctl {

// The message as JSON with the names of the .proto file, and every field.
std::string ToJson(const google::protobuf::Message& message);

// {"error": {"code": "NOT_FOUND", "message": "..."}}
std::string ErrorToJson(const absl::Status& status);

// For a terminal: control characters, which a name or a path may hold, become
// \x1b; newlines stay.
std::string WithoutControls(absl::string_view text);

// "153.6 MB": powers of 1000.
std::string FormatBytes(uint64_t bytes);

// "0.4 s", "12 s", "3 min 5 s", "2 h 10 min".
std::string FormatSeconds(double seconds);

// Columns as wide as their widest cell; the first row is the header. Text is
// to the left, what begins with a digit to the right. A cell has no newlines.
std::string FormatTable(std::vector<std::vector<std::string>> rows);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_OUTPUT_H_
