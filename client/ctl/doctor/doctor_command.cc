#include "client/ctl/doctor/doctor_command.h"

#include <sys/types.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/gpu_uuid.h"
#include "client/connection/address.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kWarning:
      return "warning";
    case Severity::kFault:
      return "fault";
  }
  return "fault";
}

std::string ToText(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%-8s %-14s %s%s%s\n",
                          SeverityName(finding.severity), finding.check,
                          finding.text, finding.fix.empty() ? "" : " -> ",
                          finding.fix);
  }
  return text;
}

std::string FindingsToJson(const Findings& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"severity", SeverityName(finding.severity)},
                    {"check", finding.check},
                    {"text", finding.text},
                    {"fix", finding.fix}});
  }
  return nlohmann::json{{"findings", list}}.dump(
             1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

// Checks a device by what the daemon reports.
void CheckDevice(const v1::Device& device, Findings* findings) {
  const std::string name =
      device.gpu_uuid().empty()
          ? device.name()
          : absl::StrCat(device.name(), " (",
                         GpuUuidText(device.gpu_uuid(), device.is_mig()), ")");
  if (!device.error().empty()) {
    findings->push_back({Severity::kFault, "device",
                         absl::StrCat(name, " has failed: ", device.error()),
                         "see `dmesg` and `nvidia-smi -q`; then restart the "
                         "daemon, which serves the others meanwhile"});
    return;
  }
  findings->push_back(
      {Severity::kOk, "device",
       absl::StrCat(name, " serves",
                    device.peers().empty()
                        ? ""
                        : absl::StrCat("; it reads the memory of ",
                                       absl::StrJoin(device.peers(), ", ")),
                    device.pinned_bytes() == 0
                        ? ""
                        : absl::StrCat("; ", FormatBytes(device.pinned_bytes()),
                                       " of host memory are pinned"))});
}

class DoctorCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "doctor"; }
  const char* help() const override {
    return "Check the system, sockets, daemon, memory, cache disk, GPUs and "
           "memory sharing, and print a line with the fix for each "
           "problem. Exit code 1 if a check fails";
  }

  void AddTo(Arguments* arguments) override {
    arguments->AddFlag(
        "--no_sharing", &skip_sharing_,
        "Skip the test that shares memory with a private daemon");
    arguments->Add("--cache_directory", &cache_directory_,
                   "Cache directory of the daemon; default: "
                   "/var/cache/datasetd, if it exists");
  }

  int Run() override {
    Findings findings;
    CheckSystem(&findings);
    const pid_t daemon = CheckDaemon(&findings);
    CheckCache(cache_directory_, &findings);
    const int num_gpus = CheckGpus(&findings);
    const std::vector<GpuPlace> gpus = FindGpus();
    CheckNodes(gpus, daemon, /*root=*/"", &findings);
    CheckPeers(gpus, &findings);
    if (!skip_sharing_) CheckSharing(num_gpus, &findings);
    const int printed =
        Print(flags().json ? FindingsToJson(findings) : ToText(findings));
    if (printed != kExitOk) return printed;
    const bool has_fault = std::any_of(
        findings.begin(), findings.end(),
        [](const Finding& f) { return f.severity == Severity::kFault; });
    return has_fault ? kExitRefused : kExitOk;
  }

 private:
  // Returns the daemon's process; 0 if it does not answer.
  pid_t CheckDaemon(Findings* findings) {
    const auto address = client::ResolveAddress(flags().address);
    if (!address.ok()) {
      findings->push_back({Severity::kFault, "address",
                           std::string(address.status().message()),
                           "correct --address or $DATASETD_ADDRESS"});
      return 0;
    }
    if (!CheckSocket(*address, findings)) return 0;
    auto client = Connect();
    absl::StatusOr<v1::GetStatusResponse> status =
        client.ok() ? client->GetStatus()
                    : absl::StatusOr<v1::GetStatusResponse>(client.status());
    if (!status.ok()) {
      findings->push_back({Severity::kFault, "daemon",
                           std::string(status.status().message()),
                           "see `systemctl status datasetd` and `journalctl -u "
                           "datasetd`"});
      return 0;
    }
    std::string devices;
    bool serves_gpu = false;
    for (const v1::Device& device : status->devices()) {
      absl::StrAppend(&devices, devices.empty() ? "" : ", ", device.name());
      serves_gpu |= !device.gpu_uuid().empty();
    }
    findings->push_back(
        {status->is_draining() ? Severity::kWarning : Severity::kOk, "daemon",
         absl::StrCat("datasetd ", status->version(), ", process ",
                      status->pid(), ", serves ", devices,
                      status->is_draining() ? ", and shuts down" : ""),
         status->is_draining() ? "wait for its restart" : ""});
    for (const v1::Device& device : status->devices()) {
      CheckDevice(device, findings);
    }
    const pid_t seen = CheckDaemonProcess(status->pid(), serves_gpu, findings);
    CheckCgroupMemory(seen, /*root=*/"", findings);
    return seen;
  }

  bool skip_sharing_ = false;
  std::string cache_directory_;
};

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand(const GlobalFlags* flags) {
  return std::make_unique<DoctorCommand>(flags);
}

}  // namespace datasetd::ctl
