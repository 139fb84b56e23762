#include "client/ctl/describe.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
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
    texts.push_back(absl::StrCat(
        field.name(), " ", EnumText(v1::Dtype_Name(field.dtype()), "DTYPE_"),
        " [", absl::StrJoin(field.shape(), ", "), "]",
        field.has_largest()
            ? absl::StrCat(" from ", ExtentText(field.smallest()), " to ",
                           ExtentText(field.largest()))
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

}  // namespace

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

std::string DescribeDataset(const v1::Dataset& dataset) {
  std::string text = absl::StrCat(
      dataset.name(), ": ", StateText(dataset), " on ", dataset.device(), "\n",
      "  samples       ", dataset.num_samples(), "\n", "  fields        ",
      FieldsText(dataset.fields()), "\n", "  resident      ",
      FormatBytes(static_cast<uint64_t>(dataset.resident_bytes())), " (",
      dataset.resident_bytes(), " bytes), once for ", dataset.num_feeds(),
      " feeds\n", "  source        ", dataset.format(), " ", dataset.path());
  if (!dataset.split().empty()) {
    absl::StrAppend(&text, ", split ", dataset.split());
  }
  absl::StrAppend(&text, "\n  content hash  ", dataset.content_hash(), "\n");
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
  absl::StrAppend(&text, "  fields        ", FieldsText(estimate.fields()),
                  "\n", "  resident      ",
                  BytesText(estimate.resident_bytes()), " on ",
                  estimate.device(), ", of which ",
                  BytesText(estimate.free_bytes()), " are free\n");
  if (estimate.scratch_bytes() > 0) {
    absl::StrAppend(&text, "  while loading ",
                    BytesText(estimate.scratch_bytes()), " more\n");
  }
  absl::StrAppend(&text, "  host memory   ", BytesText(estimate.host_bytes()),
                  " at most, while loading\n");
  if (estimate.num_bad_samples() > 0) {
    absl::StrAppend(&text, "  bad samples   ", estimate.num_bad_samples(),
                    BadSamplesText(estimate.bad_samples()), "\n");
  }
  absl::StrAppend(&text, "  verdict       ",
                  estimate.problem().empty()
                      ? "can be loaded"
                      : absl::StrCat("cannot be loaded: ", estimate.problem()),
                  "\n");
  return text;
}

}  // namespace datasetd::ctl
