#include "server/readers/mask_names.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

namespace datasetd {
namespace {

constexpr absl::string_view kMaskWords[] = {
    "annotation",   "annotations",   "labelmap", "mask",
    "masks",        "seg",           "segm",     "segmap",
    "segmentation", "segmentations", "semseg",   "trimap"};
constexpr absl::string_view kMaskNames[] = {"class_map", "label", "label_image",
                                            "label_map", "labels"};
constexpr absl::string_view kTargetNames[] = {
    "ground_truth", "groundtruth", "gt", "target", "targets", "y"};

template <size_t kSize>
bool IsIn(absl::string_view text, const absl::string_view (&all)[kSize]) {
  return std::find(std::begin(all), std::end(all), text) != std::end(all);
}

// Runs of letters, in lower case; a capital after a small letter begins one.
std::vector<std::string> Words(absl::string_view name) {
  std::vector<std::string> words;
  char last = '_';
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalpha(byte)) {
      const bool begins =
          !absl::ascii_isalpha(static_cast<unsigned char>(last));
      if (begins || (absl::ascii_isupper(byte) &&
                     absl::ascii_islower(static_cast<unsigned char>(last)))) {
        words.emplace_back();
      }
      words.back() += absl::ascii_tolower(byte);
    }
    last = c;
  }
  return words;
}

}  // namespace

bool HasOtherColours(const std::vector<FieldSpec>& fields, size_t field) {
  for (size_t f = 0; f < fields.size(); ++f) {
    const FieldSpec& other = fields[f];
    if (f != field && other.is_image && !other.is_mask && other.shape[2] > 1 &&
        !IsMaskName(other.name, {.is_beside_colours = true})) {
      return true;
    }
  }
  return false;
}

bool IsMaskName(absl::string_view name, MaskHints hints) {
  const std::vector<std::string> words = Words(name);
  const std::string text = absl::StrJoin(words, "_");
  return std::any_of(
             words.begin(), words.end(),
             [](const std::string& word) { return IsIn(word, kMaskWords); }) ||
         (hints.is_bytes && IsIn(text, kMaskNames)) ||
         (hints.is_bytes && hints.is_beside_colours &&
          IsIn(text, kTargetNames));
}

}  // namespace datasetd
