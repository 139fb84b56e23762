#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/output.h"
#include "client/ctl/transforms_argument.h"

namespace datasetd::ctl {
namespace {

// Returns "top 3, left 5", "order 2 0 1 3".
std::string Parameters(const v1::DrawnOp& op) {
  std::vector<std::string> parts;
  for (const v1::DrawnParameter& parameter : op.parameters()) {
    parts.push_back(absl::StrCat(parameter.name(), " ",
                                 absl::StrJoin(parameter.values(), " ")));
  }
  return parts.empty() ? "-" : absl::StrJoin(parts, ", ");
}

std::string List(const v1::ExplainTransformsResponse& response) {
  std::vector<std::vector<std::string>> rows = {
      {"SAMPLE", "PLACE", "OP", "APPLIED", "DRAWN"}};
  for (const v1::ExplainedSample& sample : response.samples()) {
    for (const v1::DrawnOp& op : sample.ops()) {
      rows.push_back({absl::StrCat(sample.index()),
                      absl::StrCat(op.field(), "[", op.position(), "]"),
                      op.name(), op.is_applied() ? "yes" : "no",
                      Parameters(op)});
    }
  }
  return rows.size() == 1 ? "no ops\n" : FormatTable(rows);
}

class ExplainCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "explain"; }
  const char* help() const override {
    return "Show the random parameters drawn for samples, op by op";
  }

  void AddTo(Arguments* arguments) override {
    arguments->Add("name", &dataset_, "Name of the dataset").Required();
    arguments
        ->Add("--transforms", &transforms_,
              "As in preview: presets, a JSON list of Transform "
              "messages, or @FILE")
        .Required();
    arguments->Add("--field", &field_, "Field that the transforms apply to")
        .ShowDefault();
    arguments->Add("--seed", &seed_, "Seed of the job").ShowDefault();
    arguments->Add("--epoch", &epoch_, "Epoch").ShowDefault();
    arguments->Add("--first", &first_sample_, "Index of the first sample")
        .ShowDefault();
    arguments->Add("--samples", &num_samples_, "Number of samples")
        .Between(1, 1000)
        .ShowDefault();
  }

  int Run() override {
    auto client = Connect();
    if (!client.ok()) return Fail(client.status());
    const auto dataset = client->GetDataset(dataset_);
    if (!dataset.ok()) return Fail(dataset.status());
    // Presets depend on the image's size.
    int64_t height = 1;
    int64_t width = 1;
    for (const v1::Field& field : dataset->fields()) {
      if (field.name() != field_ || field.shape_size() < 2) continue;
      const bool is_ragged = field.shape(0) < 0;
      height = is_ragged ? field.smallest().height() : field.shape(0);
      width = is_ragged ? field.smallest().width() : field.shape(1);
    }
    const auto pipeline = ParseTransforms(transforms_, height, width);
    if (!pipeline.ok()) {
      return FailUsage(std::string(pipeline.status().message()));
    }
    v1::ExplainTransformsRequest request;
    request.set_dataset(dataset_);
    *(*request.mutable_fields())[field_].mutable_transforms() =
        pipeline->transforms();
    request.set_seed(seed_);
    request.set_epoch(epoch_);
    for (uint64_t i = 0; i < num_samples_; ++i) {
      request.add_indices(first_sample_ + i);
    }
    const auto response = client->ExplainTransforms(request);
    if (!response.ok()) return Fail(response.status());
    return Print(flags().json ? ToJson(*response) : List(*response));
  }

 private:
  std::string dataset_;
  std::string field_ = "image";
  std::string transforms_;
  uint64_t seed_ = 0;
  uint64_t epoch_ = 0;
  uint64_t first_sample_ = 0;
  uint32_t num_samples_ = 1;
};

}  // namespace

std::unique_ptr<Command> MakeExplainCommand(const GlobalFlags* flags) {
  return std::make_unique<ExplainCommand>(flags);
}

}  // namespace datasetd::ctl
