// Text from outside, such as a file's name, made fit for a message or the log.

#ifndef DATASETD_BASE_UTF8_H_
#define DATASETD_BASE_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"

namespace datasetd {

// Appends `text`, in which a newline becomes \n, and these become \x and the
// digits of their bytes: what is no UTF-8, control characters (C0, C1, DEL),
// separators of lines and paragraphs, and format characters, which are unseen
// and may turn the order of others round. A joiner between two characters
// beyond ASCII stays: Persian, Indic scripts and emoji need it.
void AppendPrintable(absl::string_view text, std::string* to);

// The same as a text.
std::string PrintableUtf8(absl::string_view text);

}  // namespace datasetd

#endif  // DATASETD_BASE_UTF8_H_
