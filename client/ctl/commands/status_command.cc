#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/gpu_uuid.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/output.h"
#include "client/ctl/progress_line.h"

namespace datasetd::ctl {
namespace {

// Returns a line for each dataset that is being loaded.
std::string DescribeLoads(const std::vector<v1::Dataset>& datasets) {
  std::string text;
  for (const v1::Dataset& dataset : datasets) {
    if (dataset.state() != v1::DATASET_STATE_LOADING) continue;
    absl::StrAppend(&text, "loading ", dataset.name(), "  ",
                    FormatProgress(dataset.progress(), 0), "\n");
  }
  return text.empty() ? text : absl::StrCat("\n", text);
}

// Returns a line for each device, or for those that keep unused datasets if the
// daemon has no limit for them.
std::string DescribeUnused(const v1::GetStatusResponse& status) {
  std::string text;
  for (const v1::Device& device : status.devices()) {
    // 0: an older daemon's.
    const bool is_limited =
        device.max_unused_bytes() != 0 &&
        device.max_unused_bytes() < device.memory_budget_bytes();
    if (device.unused_bytes() == 0 && !is_limited) continue;
    absl::StrAppend(&text, "\n", device.name(), ": ",
                    FormatBytes(device.unused_bytes()),
                    " of datasets that nothing uses");
    if (is_limited) {
      absl::StrAppend(&text, ", of at most ",
                      FormatBytes(device.max_unused_bytes()));
    }
    if (status.has_evict_unused_after()) {
      absl::StrAppend(&text, "; each is evicted after ",
                      FormatSeconds(static_cast<double>(
                          status.evict_unused_after().seconds())));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string Describe(const v1::GetStatusResponse& status,
                     const std::string& address) {
  std::string text = absl::StrCat(
      "datasetd ", status.version(), " at ", address, ", pid ", status.pid(),
      ", up ", FormatSeconds(static_cast<double>(status.uptime().seconds())),
      status.is_draining() ? ", draining" : "", "\n", status.num_datasets(),
      " datasets, ", status.num_feeds(), " feeds, ", status.num_sessions(),
      " sessions; formats: ", absl::StrJoin(status.formats(), ", "), "\n\n");
  std::string failures;
  std::vector<std::vector<std::string>> rows = {{"DEVICE", "DATASETS", "SLABS",
                                                 "SCRATCH", "BUDGET", "AHEAD",
                                                 "UUID", "WHAT"}};
  for (const v1::Device& device : status.devices()) {
    rows.push_back({device.name(), FormatBytes(device.dataset_bytes()),
                    FormatBytes(device.slab_bytes()),
                    FormatBytes(device.scratch_bytes()),
                    FormatBytes(device.memory_budget_bytes()),
                    FormatBytes(device.default_prefetch_bytes()),
                    device.gpu_uuid().empty()
                        ? "-"
                        : GpuUuidText(device.gpu_uuid(), device.is_mig()),
                    device.description()});
    if (!device.error().empty()) {
      absl::StrAppend(&failures, "\n", device.name(),
                      " has failed: ", device.error(), "\n");
    }
  }
  absl::StrAppend(&text, FormatTable(rows));
  absl::StrAppend(&text, DescribeUnused(status));
  // The same for all devices.
  for (const v1::Device& device : status.devices()) {
    if (device.pinned_bytes() == 0) continue;
    absl::StrAppend(&text, "\npinned host memory  ",
                    FormatBytes(device.pinned_bytes()), "\n");
    break;
  }
  return absl::StrCat(text, failures);
}

class StatusCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "status"; }
  const char* help() const override {
    return "Show the daemon, its devices, memory and running loads";
  }

  int Run() override {
    auto client = Connect();
    if (!client.ok()) return Fail(client.status());
    const auto status = client->GetStatus();
    if (!status.ok()) return Fail(status.status());
    if (flags().json) return Print(ToJson(*status));
    const auto datasets = client->ListDatasets();
    if (!datasets.ok()) return Fail(datasets.status());
    return Print(Describe(*status, client->address().socket_path) +
                 DescribeLoads(*datasets));
  }
};

}  // namespace

std::unique_ptr<Command> MakeStatusCommand(const GlobalFlags* flags) {
  return std::make_unique<StatusCommand>(flags);
}

}  // namespace datasetd::ctl
