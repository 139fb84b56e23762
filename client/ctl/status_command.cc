#include "client/ctl/status_command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

std::string Describe(const v1::GetStatusResponse& status,
                     const std::string& address) {
  std::string text = absl::StrCat(
      "datasetd ", status.version(), " at ", address, ", pid ", status.pid(),
      ", up ", FormatSeconds(static_cast<double>(status.uptime().seconds())),
      status.is_draining() ? ", draining" : "", "\n", status.num_datasets(),
      " datasets, ", status.num_feeds(), " feeds, ", status.num_sessions(),
      " sessions; formats: ", absl::StrJoin(status.formats(), ", "), "\n\n");
  std::vector<std::vector<std::string>> rows = {
      {"DEVICE", "DATASETS", "SLABS", "SCRATCH", "BUDGET", "WHAT"}};
  for (const v1::Device& device : status.devices()) {
    rows.push_back({device.name(), FormatBytes(device.dataset_bytes()),
                    FormatBytes(device.slab_bytes()),
                    FormatBytes(device.scratch_bytes()),
                    FormatBytes(device.memory_budget_bytes()),
                    device.description()});
  }
  return text + FormatTable(rows);
}

}  // namespace

CLI::App* StatusCommand::AddTo(CLI::App& app) {
  return app.add_subcommand("status", "The daemon, its devices and memory");
}

int StatusCommand::Run() {
  auto client = Connect();
  if (!client.ok()) return Fail(client.status());
  const auto status = client->GetStatus();
  if (!status.ok()) return Fail(status.status());
  return Print(flags().json
                   ? ToJson(*status)
                   : Describe(*status, client->address().socket_path));
}

}  // namespace datasetd::ctl
