#include "server/load/load_request.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "proto/short_name.h"
#include "server/dataset/dataset_limits.h"
#include "server/dataset/sorted_options.h"
#include "server/pipeline/transforms_hash.h"

namespace datasetd {
namespace {

constexpr int64_t kDefaultMaxBadSamples = 100;

// Prefixes the length, so that no text can imitate the parts that follow.
std::string Part(absl::string_view text) {
  return absl::StrCat(text.size(), ":", text, "\n");
}

}  // namespace

std::string PretransformsHash(const Pretransforms& pretransforms) {
  std::vector<FieldPipeline> pipelines;
  for (const auto& [field, ops] : pretransforms) {
    pipelines.push_back({.field = field, .transforms = ops});
  }
  return TransformsHash(pipelines);
}

absl::StatusOr<LoadRequest> CheckRequest(v1::DatasetSpec spec,
                                         const Caller& caller) {
  spec.set_path(NormalPath(spec.path()));
  if (!v1::BadSamplePolicy_IsValid(spec.bad_samples())) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad_samples: ", static_cast<int>(spec.bad_samples()),
                     " is unknown; one of fail, skip, replace"));
  }
  if (!v1::Residency_IsValid(spec.residency())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "residency: ", static_cast<int>(spec.residency()),
        " is unknown; one of device, pinned, split, auto, mapped"));
  }
  if (spec.device_bytes() > static_cast<uint64_t>(INT64_MAX)) {
    return absl::InvalidArgumentError(
        absl::StrCat("device_bytes: ", spec.device_bytes(),
                     " is out of range; at most ", INT64_MAX));
  }
  DATASETD_RETURN_IF_ERROR(CheckSpecTexts(spec));
  LoadRequest request;
  for (const auto& [field, pipeline] : spec.pretransforms()) {
    DATASETD_ASSIGN_OR_RETURN(
        request.pretransforms[field],
        CompleteTransforms(pipeline.transforms(),
                           absl::StrCat("field '", field, "', pretransforms")));
  }
  if (spec.pin() && caller.session_id != 0 && !caller.is_privileged) {
    return absl::PermissionDeniedError(
        "pin: only root, the daemon's user and its configuration may pin a "
        "dataset");
  }
  request.spec = std::make_shared<const v1::DatasetSpec>(std::move(spec));
  return request;
}

MemoryBudget::Terms TermsOf(const v1::DatasetSpec& spec, const Caller& caller) {
  return {.is_exempt = caller.session_id == 0,
          .is_privileged = caller.is_privileged,
          .is_private = spec.private_()};
}

int64_t MaxBadSamples(const v1::DatasetSpec& spec) {
  return spec.has_max_bad_samples() ? spec.max_bad_samples()
                                    : kDefaultMaxBadSamples;
}

std::string ResidencyName(v1::Residency residency) {
  return ShortName(*v1::Residency_descriptor()->FindValueByNumber(residency));
}

std::string SpecId(const LoadRequest& request, absl::string_view device,
                   const SourceInfo& source) {
  const v1::DatasetSpec& spec = *request.spec;
  std::string text =
      absl::StrCat("datasetd spec 2\n", Part(spec.format()), Part(spec.path()),
                   Part(spec.split()), Part(device),
                   Part(PretransformsHash(request.pretransforms)));
  if (spec.bad_samples() > v1::BAD_SAMPLE_POLICY_FAIL) {
    absl::StrAppend(&text, "bad samples ", static_cast<int>(spec.bad_samples()),
                    " ", MaxBadSamples(spec), "\n");
  }
  if (spec.residency() > v1::RESIDENCY_DEVICE) {
    absl::StrAppend(&text, "residency ", ResidencyName(spec.residency()), " ",
                    spec.device_bytes(), "\n");
  }
  if (!spec.class_names().empty()) {
    absl::StrAppend(&text, spec.class_names_size(), " classes ",
                    spec.ignore_other_classes(), "\n");
    for (const std::string& name : spec.class_names()) {
      absl::StrAppend(&text, Part(name));
    }
  }
  const auto parts = spec.options().find("parts");
  // Its labels differ from those of earlier versions, in whose caches they are.
  if (spec.format() == "image_csv" ||
      absl::StrContains(parts == spec.options().end() ? "" : parts->second,
                        "image_csv:")) {
    absl::StrAppend(&text, "image_csv 2\n");
  }
  absl::StrAppend(&text, spec.options_size(), " options\n");
  for (const auto& [key, value] : SortedOptions(spec)) {
    absl::StrAppend(&text, Part(key), Part(value));
  }
  DigestHasher hasher;
  hasher.Update(text);
  // One by one, since there may be millions.
  for (const FileInfo& file : source.files) {
    hasher.Update(absl::StrCat(Part(file.path), file.size_bytes, " ",
                               file.mtime_nanoseconds, "\n"));
  }
  return ToHex(hasher.Finish());
}

std::string PushedSpecId(const std::string& name,
                         const std::string& content_hash, uint32_t owner_uid) {
  return HexDigest(absl::StrCat("datasetd push 2\n", owner_uid, "\n",
                                Part(name), Part(content_hash)));
}

}  // namespace datasetd
