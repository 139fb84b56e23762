#include "client/ctl/commands/unload_command.h"

#include "absl/strings/str_cat.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {

const char* UnloadCommand::help() const {
  return "Take a dataset out of memory";
}

void UnloadCommand::AddTo(Arguments* arguments) {
  arguments->Add("name", &name_, "The dataset's name").Required();
  arguments->AddFlag("--force", &force_,
                     "Also if it has open feeds: their jobs get an error");
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
