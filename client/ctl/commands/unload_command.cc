#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

class UnloadCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "unload"; }
  const char* help() const override { return "Unload a dataset"; }

  void AddTo(Arguments* arguments) override {
    arguments->Add("name", &name_, "Name of the dataset").Required();
    arguments->AddFlag("--force", &force_,
                       "Unload it even if feeds are open; their jobs get an "
                       "error");
  }

  int Run() override {
    auto client = Connect();
    if (!client.ok()) return Fail(client.status());
    const absl::Status status = client->UnloadDataset(name_, force_);
    if (!status.ok()) return Fail(status);
    return Print(flags().json ? ToJson(v1::UnloadDatasetResponse())
                              : absl::StrCat(name_, ": unloaded\n"));
  }

 private:
  std::string name_;
  bool force_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeUnloadCommand(const GlobalFlags* flags) {
  return std::make_unique<UnloadCommand>(flags);
}

}  // namespace datasetd::ctl
