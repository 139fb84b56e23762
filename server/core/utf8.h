// Text from outside, such as a file's name, made fit for a message.

#ifndef DATASETD_SERVER_CORE_UTF8_H_
#define DATASETD_SERVER_CORE_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"

namespace datasetd {

// `text` itself if it is UTF-8 without control characters; else with every byte
// that is not printable ASCII escaped, as \xff.
std::string PrintableUtf8(absl::string_view text);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_UTF8_H_
