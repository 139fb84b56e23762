#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/describe.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

std::string List(const v1::ListDatasetsResponse& response) {
  if (response.datasets().empty()) {
    return "no datasets; load one: datasetctl load NAME --format FORMAT --path "
           "PATH\n";
  }
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "STATE", "DEVICE", "RESIDENCY", "SAMPLES", "RESIDENT", "FEEDS",
       "HOLDERS"}};
  for (const v1::Dataset& dataset : response.datasets()) {
    rows.push_back(
        {dataset.name(), StateText(dataset), dataset.device(),
         ResidencyText(dataset.residency()),
         absl::StrCat(dataset.num_samples()),
         FormatBytes(static_cast<uint64_t>(dataset.resident_bytes())),
         absl::StrCat(dataset.num_feeds()),
         absl::StrCat(dataset.num_holders())});
  }
  return FormatTable(rows);
}

class DatasetsCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "datasets"; }
  const char* help() const override {
    return "List the datasets; with NAME, describe that dataset";
  }

  void AddTo(Arguments* arguments) override {
    arguments->Add("name", &name_, "Name of a dataset");
  }

  int Run() override {
    auto client = Connect();
    if (!client.ok()) return Fail(client.status());
    if (!name_.empty()) {
      const auto dataset = client->GetDataset(name_);
      if (!dataset.ok()) return Fail(dataset.status());
      return Print(flags().json ? ToJson(*dataset) : DescribeDataset(*dataset));
    }
    v1::ListDatasetsResponse response;
    const absl::Status status =
        client->Call(v1::ListDatasetsRequest(), &response);
    if (!status.ok()) return Fail(status);
    return Print(flags().json ? ToJson(response) : List(response));
  }

 private:
  std::string name_;
};

}  // namespace

std::unique_ptr<Command> MakeDatasetsCommand(const GlobalFlags* flags) {
  return std::make_unique<DatasetsCommand>(flags);
}

}  // namespace datasetd::ctl
