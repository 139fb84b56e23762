// UTF-8: checks it, and escapes untrusted text, such as file names, for
// messages and logs.

#ifndef DATASETD_BASE_UTF8_H_
#define DATASETD_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace datasetd {

// Returns the offset of the first byte that is not valid UTF-8, or the size.
size_t ValidUtf8Prefix(absl::string_view text);

// Appends `text` with newlines escaped as \n. Invalid UTF-8, control characters
// (C0, C1, DEL), line and paragraph separators, and format characters, which
// are invisible and may reorder text, are escaped bytewise as \xNN. A joiner
// between two non-ASCII characters is kept: Persian, Indic scripts and emoji
// need it.
void AppendPrintable(absl::string_view text, std::string* to);

// Returns `text` escaped as by AppendPrintable.
std::string PrintableUtf8(absl::string_view text);

}  // namespace datasetd

#endif  // DATASETD_BASE_UTF8_H_
