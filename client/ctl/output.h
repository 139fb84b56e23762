// Output formats of datasetctl: JSON, tables, and human-readable numbers.

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

// Returns the message as JSON with all fields, named as in the .proto file.
std::string ToJson(const google::protobuf::Message& message);

// {"error": {"code": "NOT_FOUND", "message": "..."}}
std::string ErrorToJson(const absl::Status& status);

// Escapes control characters, which names and paths may contain, as \x1b, for
// terminals, and characters that change the direction of text. Keeps newlines.
std::string WithoutControls(absl::string_view text);

// Returns "153.6 MB": units are powers of 1000.
std::string FormatBytes(uint64_t bytes);

// Returns "0.4 s", "12 s", "3 min 5 s", "2 h 10 min".
std::string FormatSeconds(double seconds);

// Formats a table whose first row is the header. Text is left-aligned, cells
// that begin with a digit are right-aligned. Cells have no newlines.
std::string FormatTable(std::vector<std::vector<std::string>> rows);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_OUTPUT_H_
