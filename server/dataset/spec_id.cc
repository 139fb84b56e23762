#include "server/dataset/spec_id.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/digest.h"

namespace datasetd {
namespace {

// Prefixes the length, so that no text can imitate the parts that follow.
std::string Part(absl::string_view text) {
  return absl::StrCat(text.size(), ":", text, "\n");
}

}  // namespace

std::string SpecId(const DatasetSpec& spec, const SourceInfo& source) {
  std::string text = absl::StrCat(
      "datasetd spec 2\n", Part(spec.format), Part(spec.path), Part(spec.split),
      Part(spec.device), Part(spec.pretransforms_key));
  if (spec.bad_samples != BadSamplePolicy::kFail) {
    absl::StrAppend(&text, "bad samples ", static_cast<int>(spec.bad_samples),
                    " ", spec.max_bad_samples, "\n");
  }
  if (spec.residency != Residency::kDevice) {
    absl::StrAppend(&text, "residency ", ResidencyName(spec.residency), " ",
                    spec.device_bytes, "\n");
  }
  absl::StrAppend(&text, spec.options.size(), " options\n");
  for (const auto& [key, value] : spec.options) {
    absl::StrAppend(&text, Part(key), Part(value));
  }
  for (const FileInfo& file : source.files) {
    absl::StrAppend(&text, Part(file.path), file.size_bytes, " ",
                    file.mtime_nanoseconds, "\n");
  }
  return HexDigest(text);
}

std::string PushedSpecId(const std::string& name,
                         const std::string& content_hash, uint32_t owner_uid) {
  return HexDigest(absl::StrCat("datasetd push 2\n", owner_uid, "\n",
                                Part(name), Part(content_hash)));
}

}  // namespace datasetd
