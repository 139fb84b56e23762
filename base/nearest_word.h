// Finds what a mistyped word may have meant.

#ifndef DATASETD_BASE_NEAREST_WORD_H_
#define DATASETD_BASE_NEAREST_WORD_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace datasetd {

// Returns the word of `words` with the fewest letters to insert, delete or
// replace, the first of several; empty if it takes more than a third of the
// letters of `typed`, and more than one.
std::string NearestWord(absl::string_view typed,
                        const std::vector<std::string>& words);

}  // namespace datasetd

#endif  // DATASETD_BASE_NEAREST_WORD_H_
