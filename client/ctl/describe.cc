#include "client/ctl/describe.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/gpu_uuid.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

// Returns "DTYPE_UINT8" without the enum's prefix, in lower case.
std::string EnumText(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  return absl::AsciiStrToLower(name);
}

std::string ExtentText(const v1::ImageExtent& extent) {
  return absl::StrCat(extent.height(), "x", extent.width());
}

std::string FieldsText(
    const google::protobuf::RepeatedPtrField<v1::Field>& fields) {
  std::vector<std::string> texts;
  for (const v1::Field& field : fields) {
    const auto extent = [&](const v1::ImageExtent& size) {
      return field.is_image() ? ExtentText(size) : absl::StrCat(size.height());
    };
    texts.push_back(absl::StrCat(
        field.name(), " ", EnumText(v1::Dtype_Name(field.dtype()), "DTYPE_"),
        " [", absl::StrJoin(field.shape(), ", "), "]",
        field.has_largest() ? absl::StrCat(" from ", extent(field.smallest()),
                                           " to ", extent(field.largest()),
                                           field.is_image() ? "" : " steps")
                            : ""));
  }
  return absl::StrJoin(texts, ", ");
}

// Returns one line per bad sample.
std::string BadSamplesText(
    const google::protobuf::RepeatedPtrField<v1::BadSample>& samples) {
  std::string text;
  for (const v1::BadSample& sample : samples) {
    absl::StrAppend(
        &text, "\n    ", sample.path(),
        sample.offset() == 0 ? "" : absl::StrCat(", offset ", sample.offset()),
        ": ", sample.reason());
  }
  return text;
}

std::string BytesText(int64_t bytes) {
  return absl::StrCat(FormatBytes(static_cast<uint64_t>(bytes)), " (", bytes,
                      " bytes)");
}

// Returns a line per device, and one for pinned host memory, if there are
// several, or one has failed.
std::string PlacementsText(
    v1::Residency residency,
    const google::protobuf::RepeatedPtrField<v1::Placement>& placements) {
  std::string text;
  const auto line = [&](const std::string& name, int64_t bytes,
                        const std::string& rest) {
    absl::StrAppend(&text, "  ", name,
                    std::string(14 - std::min<size_t>(name.size(), 13), ' '),
                    FormatBytes(static_cast<uint64_t>(bytes)), rest, "\n");
  };
  int64_t host_bytes = 0;
  for (const v1::Placement& placement : placements) {
    host_bytes += placement.host_bytes();
    if (placements.size() == 1 && placement.error().empty() &&
        placement.host_bytes() == 0) {
      continue;
    }
    line(placement.device(), placement.device_bytes(),
         absl::StrCat(placement.gpu_uuid().empty()
                          ? ""
                          : absl::StrCat(", ", GpuUuidText(placement.gpu_uuid(),
                                                           placement.is_mig())),
                      placement.error().empty()
                          ? ""
                          : absl::StrCat(", has failed: ", placement.error())));
  }
  if (host_bytes > 0) {
    const bool is_mapped = residency == v1::RESIDENCY_MAPPED;
    line(is_mapped ? "mapped" : "pinned", host_bytes,
         is_mapped ? ", file of the cache" : ", host memory");
  }
  return text;
}

// True if each device has all samples.
bool AreReplicas(
    const google::protobuf::RepeatedPtrField<v1::Placement>& placements,
    int64_t resident_bytes) {
  return placements.size() > 1 &&
         placements[0].device_bytes() == resident_bytes;
}

}  // namespace

std::string ResidencyText(v1::Residency residency) {
  return residency == v1::RESIDENCY_UNSPECIFIED
             ? ""
             : EnumText(v1::Residency_Name(residency), "RESIDENCY_");
}

std::string StateText(const v1::Dataset& dataset) {
  std::string text =
      EnumText(v1::DatasetState_Name(dataset.state()), "DATASET_STATE_");
  const v1::LoadProgress& progress = dataset.progress();
  if (progress.is_scanning()) {
    text = "scanning";
  } else if (dataset.state() == v1::DATASET_STATE_LOADING &&
             progress.num_samples() > 0) {
    absl::StrAppend(
        &text, " ",
        100 * progress.num_samples_loaded() / progress.num_samples(), "%");
  }
  return text;
}

std::string SummaryText(const v1::Dataset& dataset) {
  constexpr int kMaxNames = 10;
  std::string text =
      absl::StrCat(dataset.format(), ": ", dataset.num_samples(),
                   dataset.num_samples() == 1 ? " sample" : " samples");
  const auto& names = dataset.class_names();
  if (!names.empty()) {
    const int count = std::min(names.size(), kMaxNames);
    absl::StrAppend(&text, ", ", names.size(),
                    names.size() == 1 ? " class" : " classes", " ['",
                    absl::StrJoin(names.begin(), names.begin() + count, "', '"),
                    count < names.size() ? "', ...]" : "']");
  }
  for (const v1::LoadNote& note : dataset.notes()) {
    absl::StrAppend(&text, "; ", note.text());
  }
  return text;
}

std::string DescribeDataset(const v1::Dataset& dataset) {
  std::string text = absl::StrCat(
      dataset.name(), ": ", StateText(dataset), " on ", dataset.device(), "\n",
      "  summary       ", SummaryText(dataset), "\n", "  samples       ",
      dataset.num_samples(), "\n", "  fields        ",
      FieldsText(dataset.fields()), "\n", "  resident      ",
      BytesText(dataset.resident_bytes()), ", once for ", dataset.num_feeds(),
      AreReplicas(dataset.placements(), dataset.resident_bytes())
          ? " feeds, on each device\n"
          : " feeds\n",
      "  residency     ", ResidencyText(dataset.residency()), "\n",
      PlacementsText(dataset.residency(), dataset.placements()),
      "  source        ", dataset.format(), " ", dataset.path());
  if (!dataset.split().empty()) {
    absl::StrAppend(&text, ", split ", dataset.split());
  }
  absl::StrAppend(&text, "\n  content hash  ", dataset.content_hash(), "\n");
  if (dataset.is_private()) {
    absl::StrAppend(&text, "  private       hidden from other users\n");
  }
  if (dataset.is_pinned()) {
    absl::StrAppend(&text, "  pinned        never evicted\n");
  }
  if (!dataset.class_names().empty()) {
    absl::StrAppend(&text, "  classes       ",
                    absl::StrJoin(dataset.class_names(), ", "), "\n");
  }
  if (dataset.num_bad_samples() > 0) {
    absl::StrAppend(&text, "  bad samples   ", dataset.num_bad_samples(),
                    BadSamplesText(dataset.bad_samples()), "\n");
  }
  if (!dataset.error().empty()) {
    absl::StrAppend(&text, "  error         ", dataset.error(), "\n");
  }
  return text;
}

std::string DescribeEstimate(const v1::LoadEstimate& estimate) {
  std::string text = absl::StrCat(
      "nothing was loaded\n", "  samples       ", estimate.num_samples(),
      estimate.num_classes() == 0
          ? ""
          : absl::StrCat(" in ", estimate.num_classes(), " classes"),
      "\n", "  source        ", BytesText(estimate.source_bytes()), "\n");
  if (estimate.has_largest()) {
    absl::StrAppend(&text, "  image sizes   ", ExtentText(estimate.smallest()),
                    " to ", ExtentText(estimate.largest()),
                    " (height x width)\n");
  }
  const bool are_replicas =
      AreReplicas(estimate.placements(), estimate.resident_bytes());
  absl::StrAppend(&text, "  fields        ", FieldsText(estimate.fields()),
                  "\n", "  resident      ",
                  BytesText(estimate.resident_bytes()),
                  are_replicas ? " on each of " : " on ", estimate.device(),
                  ", of which ", BytesText(estimate.free_bytes()),
                  are_replicas ? " are free on every one\n" : " are free\n",
                  "  residency     ", ResidencyText(estimate.residency()), "\n",
                  PlacementsText(estimate.residency(), estimate.placements()));
  absl::StrAppend(&text, "  host memory   ", BytesText(estimate.host_bytes()),
                  " at most, while loading\n");
  if (estimate.num_bad_samples() > 0) {
    absl::StrAppend(&text, "  bad samples   ", estimate.num_bad_samples(),
                    BadSamplesText(estimate.bad_samples()), "\n");
  }
  for (const v1::LoadNote& note : estimate.notes()) {
    absl::StrAppend(&text,
                    note.is_warning() ? "  warning       " : "  note          ",
                    note.text(), "\n");
  }
  absl::StrAppend(&text, "  verdict       ",
                  estimate.problem().empty()
                      ? "can be loaded"
                      : absl::StrCat("cannot be loaded: ", estimate.problem()),
                  "\n");
  return text;
}

}  // namespace datasetd::ctl
