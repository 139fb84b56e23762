#include "server/core/spec_id.h"

#include <xxhash.h>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

std::string HexHash(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

}  // namespace

std::string SpecId(const DatasetSpec& spec, const SourceInfo& source) {
  std::string text = absl::StrCat("datasetd spec 1\n", spec.format, "\n",
                                  spec.path, "\n", spec.split, "\n",
                                  spec.device, "\n", spec.pretransforms_key,
                                  "\n");
  if (spec.bad_samples != BadSamplePolicy::kFail) {
    absl::StrAppend(&text, "bad samples ", static_cast<int>(spec.bad_samples),
                    " ", spec.max_bad_samples, "\n");
  }
  for (const auto& [key, value] : spec.options) {
    absl::StrAppend(&text, key.size(), ":", key, "=", value.size(), ":", value,
                    "\n");
  }
  for (const FileInfo& file : source.files) {
    absl::StrAppend(&text, file.path, " ", file.size_bytes, " ",
                    file.mtime_nanoseconds, "\n");
  }
  return HexHash(text);
}

std::string PushedSpecId(const std::string& name,
                         const std::string& content_hash) {
  return HexHash(
      absl::StrCat("datasetd push 1\n", name, "\n", content_hash, "\n"));
}

}  // namespace datasetd
