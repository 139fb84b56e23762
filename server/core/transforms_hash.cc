#include "server/core/transforms_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <variant>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

// Part of the hash: a change of the text below needs another version.
constexpr const char* kVersion = "datasetd transforms 1";

std::string Number(double value) {
  float number = static_cast<float>(value);
  if (number == 0.0f) number = 0.0f;  // of two zeros one
  uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad8));
}

template <typename T>
std::string Numbers(const std::vector<T>& values) {
  std::vector<std::string> numbers;
  for (T value : values) numbers.push_back(Number(value));
  if (std::all_of(numbers.begin(), numbers.end(),
                  [&](const std::string& n) { return n == numbers[0]; }) &&
      !numbers.empty()) {
    numbers.resize(1);
  }
  std::string text;
  for (const std::string& number : numbers) {
    absl::StrAppend(&text, text.empty() ? "" : ",", number);
  }
  return text;
}

std::string PaddingText(const Padding& padding, const std::vector<float>& fill,
                        PaddingMode mode) {
  std::string fill_text = Number(0);
  if (mode == PaddingMode::kConstant && !fill.empty()) {
    fill_text = Numbers(fill);
  }
  return absl::StrCat(padding.left, ",", padding.top, ",", padding.right, ",",
                      padding.bottom, " mode ", static_cast<int>(mode),
                      " fill ", fill_text);
}

struct Parameters {
  std::string operator()(const PadSpec& op) const {
    return PaddingText(op.padding, op.fill, op.padding_mode);
  }
  std::string operator()(const CenterCropSpec& op) const {
    return absl::StrCat(op.height, "x", op.width);
  }
  std::string operator()(const RandomCropSpec& op) const {
    return absl::StrCat(op.height, "x", op.width, " ",
                        PaddingText(op.padding, op.fill, op.padding_mode),
                        op.pad_if_needed ? " if needed" : "");
  }
  std::string operator()(const RandomHorizontalFlipSpec& op) const {
    return Number(op.p);
  }
  std::string operator()(const RandomVerticalFlipSpec& op) const {
    return Number(op.p);
  }
  std::string operator()(const AlternatingFlipSpec&) const { return ""; }
  std::string operator()(const ToDtypeSpec& op) const {
    return absl::StrCat(DtypeName(op.dtype), op.scale ? " scale" : "");
  }
  std::string operator()(const NormalizeSpec& op) const {
    return absl::StrCat(Numbers(op.mean), " ", Numbers(op.std));
  }
};

}  // namespace

std::string TransformsHash(absl::Span<const FieldPipeline> pipelines) {
  std::string text = absl::StrCat(kVersion, "\n");
  for (const FieldPipeline& pipeline : pipelines) {
    // The length keeps names with line ends apart from what follows.
    absl::StrAppend(&text, "field ", pipeline.field.size(), " ",
                    pipeline.field,
                    pipeline.layout == Layout::kNhwc ? " NHWC\n" : " NCHW\n");
    for (const TransformSpec& op : pipeline.transforms) {
      absl::StrAppend(&text, TransformName(op), " ",
                      std::visit(Parameters(), op), "\n");
    }
  }
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

}  // namespace datasetd
