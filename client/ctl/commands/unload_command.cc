#include "client/ctl/commands/unload_command.h"

#include "absl/strings/str_cat.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {

CLI::App* UnloadCommand::AddTo(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("unload", "Take a dataset out of memory");
  command->add_option("name", name_, "The dataset's name")->required();
  command->add_flag("--force", force_,
                    "Also if it has open feeds: their jobs get an error");
  return command;
}

int UnloadCommand::Run() {
  auto client = Connect();
  if (!client.ok()) return Fail(client.status());
  const absl::Status status = client->UnloadDataset(name_, force_);
  if (!status.ok()) return Fail(status);
  return Print(flags().json ? ToJson(v1::UnloadDatasetResponse())
                            : absl::StrCat(name_, ": unloaded\n"));
}

}  // namespace datasetd::ctl
