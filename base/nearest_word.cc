#include "base/nearest_word.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace datasetd {
namespace {

// The Levenshtein distance, by rows of its table.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestWord(absl::string_view typed,
                        const std::vector<std::string>& words) {
  size_t least = std::max<size_t>(1, typed.size() / 3) + 1;
  std::string nearest;
  for (const std::string& word : words) {
    const size_t distance = Distance(typed, word);
    if (distance >= least) continue;
    least = distance;
    nearest = word;
  }
  return nearest;
}

}  // namespace datasetd
