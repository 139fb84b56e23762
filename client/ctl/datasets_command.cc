#include "client/ctl/datasets_command.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

// "DTYPE_UINT8" without the enum's prefix, in lower case.
std::string EnumText(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  return absl::AsciiStrToLower(name);
}

std::string StateText(const v1::Dataset& dataset) {
  std::string text = EnumText(v1::DatasetState_Name(dataset.state()),
                              "DATASET_STATE_");
  const v1::LoadProgress& progress = dataset.progress();
  if (dataset.state() == v1::DATASET_STATE_LOADING &&
      progress.num_samples() > 0) {
    absl::StrAppend(
        &text, " ",
        100 * progress.num_samples_loaded() / progress.num_samples(), "%");
  }
  return text;
}

std::string List(const std::vector<v1::Dataset>& datasets) {
  if (datasets.empty()) {
    return "no datasets; load one: datasetctl load NAME --format FORMAT --path "
           "PATH\n";
  }
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "STATE", "DEVICE", "SAMPLES", "RESIDENT", "FEEDS", "HOLDERS"}};
  for (const v1::Dataset& dataset : datasets) {
    rows.push_back(
        {dataset.name(), StateText(dataset), dataset.device(),
         absl::StrCat(dataset.num_samples()),
         FormatBytes(static_cast<uint64_t>(dataset.resident_bytes())),
         absl::StrCat(dataset.num_feeds()),
         absl::StrCat(dataset.num_holders())});
  }
  return FormatTable(rows);
}

}  // namespace

std::string DescribeDataset(const v1::Dataset& dataset) {
  std::vector<std::string> fields;
  for (const v1::Field& field : dataset.fields()) {
    fields.push_back(absl::StrCat(
        field.name(), " ", EnumText(v1::Dtype_Name(field.dtype()), "DTYPE_"),
        " [", absl::StrJoin(field.shape(), ", "), "]"));
  }
  std::string text = absl::StrCat(
      dataset.name(), ": ", StateText(dataset), " on ", dataset.device(), "\n",
      "  samples       ", dataset.num_samples(), "\n",
      "  fields        ", absl::StrJoin(fields, ", "), "\n",
      "  resident      ",
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
  if (!dataset.error().empty()) {
    absl::StrAppend(&text, "  error         ", dataset.error(), "\n");
  }
  return text;
}

CLI::App* DatasetsCommand::AddTo(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "datasets", "What is resident; with NAME, all about that dataset");
  command->add_option("name", name_, "A dataset's name");
  return command;
}

int DatasetsCommand::Run() {
  auto client = Connect();
  if (!client.ok()) return Fail(client.status());
  if (!name_.empty()) {
    const auto dataset = client->GetDataset(name_);
    if (!dataset.ok()) return Fail(dataset.status());
    return Print(flags().json ? ToJson(*dataset) : DescribeDataset(*dataset));
  }
  const auto datasets = client->ListDatasets();
  if (!datasets.ok()) return Fail(datasets.status());
  if (!flags().json) return Print(List(*datasets));
  v1::ListDatasetsResponse response;
  response.mutable_datasets()->Assign(datasets->begin(), datasets->end());
  return Print(ToJson(response));
}

}  // namespace datasetd::ctl
