#include "server/dataset/dataset_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace datasetd {

bool IsDatasetName(const std::string& name) {
  constexpr size_t kMaxBytes = 128;
  return !name.empty() && name.size() <= kMaxBytes &&
         absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

}  // namespace datasetd
