#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/doctor/machine.h"

namespace datasetd::ctl {
namespace {

// "0-3,8" as numbers; nullopt if it is not of that form, or empty.
std::optional<std::set<int>> ParseCores(absl::string_view text) {
  std::set<int> cores;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last)) {
      return std::nullopt;
    }
    for (int core = first; core <= last; ++core) cores.insert(core);
  }
  return cores;
}

// The cores that a process may use, as /proc says.
std::string AllowedCores(const std::string& root, pid_t process) {
  std::ifstream file(absl::StrCat(root, "/proc/", process, "/status"));
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view cores = line;
    if (absl::ConsumePrefix(&cores, "Cpus_allowed_list:")) {
      return std::string(absl::StripAsciiWhitespace(cores));
    }
  }
  return "";
}

std::string Describe(const GpuPlace& gpu) {
  return absl::StrCat(
      gpu.name, " (", gpu.uuid, ") at ", gpu.pci_address,
      gpu.num_links == 0 ? "" : absl::StrCat(", ", gpu.num_links, " NVLinks"));
}

}  // namespace

void CheckNodes(const std::vector<GpuPlace>& gpus, pid_t daemon,
                const std::string& root, Findings* findings) {
  const std::string allowed = daemon == 0 ? "" : AllowedCores(root, daemon);
  const std::optional<std::set<int>> allowed_cores = ParseCores(allowed);
  for (const GpuPlace& gpu : gpus) {
    int node = -1;
    const std::string text = FirstLine(absl::StrCat(
        root, "/sys/bus/pci/devices/", gpu.pci_address, "/numa_node"));
    if (text.empty()) {
      findings->push_back(
          {Severity::kWarning, "NUMA node",
           absl::StrCat(Describe(gpu),
                        ": its node is not to be seen, as /sys has no such "
                        "device"),
           "in a container mount /sys; else see `nvidia-smi topo -m`"});
      continue;
    }
    if (!absl::SimpleAtoi(text, &node) || node < 0) {
      findings->push_back({Severity::kOk, "NUMA node",
                           absl::StrCat(Describe(gpu),
                                        ": on no node of its own; the machine "
                                        "has one, or does not tell")});
      continue;
    }
    const std::string cores = FirstLine(
        absl::StrCat(root, "/sys/devices/system/node/node", node, "/cpulist"));
    const std::string where =
        absl::StrCat(Describe(gpu), ": node ", node,
                     cores.empty() ? "" : absl::StrCat(", cores ", cores));
    const std::optional<std::set<int>> node_cores = ParseCores(cores);
    bool may_run_there = true;
    if (allowed_cores.has_value() && node_cores.has_value()) {
      may_run_there = false;
      for (const int core : *node_cores) {
        may_run_there |= allowed_cores->count(core) > 0;
      }
    }
    if (may_run_there) {
      findings->push_back({Severity::kOk, "NUMA node", where});
    } else {
      findings->push_back(
          {Severity::kWarning, "NUMA node",
           absl::StrCat(where, "; the daemon may run on cores ", allowed,
                        " only, so its copies to this GPU cross nodes"),
           absl::StrCat("give it cores of node ", node,
                        ", too: AllowedCPUs= of its unit, or the container's "
                        "cpuset; or a daemon of its own for this GPU")});
    }
  }
}

void CheckPeers(const std::vector<GpuPlace>& gpus, Findings* findings) {
  if (gpus.size() < 2) return;
  std::string refused;
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (size_t j = 0; j < gpus.size(); ++j) {
      if (i == j || gpus[i].reads[j]) continue;
      absl::StrAppend(&refused, refused.empty() ? "" : ", ", gpus[i].name,
                      " from ", gpus[j].name);
    }
  }
  if (refused.empty()) {
    findings->push_back(
        {Severity::kOk, "peer access",
         absl::StrCat("all ", gpus.size(), " GPUs read one another's memory")});
  } else {
    findings->push_back(
        {Severity::kWarning, "peer access",
         absl::StrCat("not read directly: ", refused,
                      "; replicas are copied there through host memory, and "
                      "samples cannot be divided over them"),
         "see `nvidia-smi topo -p2p r`; on a virtual machine or with an IOMMU, "
         "ask for peer access (ACS) in its settings"});
  }
}

}  // namespace datasetd::ctl
