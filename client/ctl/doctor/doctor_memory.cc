#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

// Version 1 writes "no limit" as a number about as large as any.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;
// Above this share of the limit the kernel begins to reclaim.
constexpr double kNearlyFull = 0.9;

struct Cgroup {
  int version = 2;
  std::string path;  // "/system.slice/datasetd.service"
};

// That of memory; nullopt if the process is not to be seen.
std::optional<Cgroup> CgroupOf(const std::string& root, pid_t process) {
  std::ifstream file(absl::StrCat(root, "/proc/", process, "/cgroup"));
  std::optional<Cgroup> found;
  std::string line;
  while (std::getline(file, line)) {
    // "4:memory:/path", or "0::/path" of version 2.
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "memory") !=
        controllers.end()) {
      return Cgroup{.version = 1, .path = parts[2]};
    }
    if (parts[0] == "0") found = Cgroup{.version = 2, .path = parts[2]};
  }
  return found;
}

std::optional<uint64_t> Number(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  uint64_t number = 0;
  if (!std::getline(file, line)) return std::nullopt;
  if (line == "max") return kNoLimit;
  if (!absl::SimpleAtoi(line, &number)) return std::nullopt;
  return number;
}

// Returns the bytes of a cgroup's file pages, which the kernel can take back.
uint64_t FileBytes(const std::string& folder, bool is_v2) {
  // Under these names version 1 includes the cgroups below, as the usage does.
  const std::string active = is_v2 ? "active_file" : "total_active_file";
  const std::string inactive = is_v2 ? "inactive_file" : "total_inactive_file";
  std::ifstream file(folder + "/memory.stat");
  std::string name;
  uint64_t value = 0;
  uint64_t total = 0;
  while (file >> name >> value) {
    if (name == active || name == inactive) total += value;
  }
  return total;
}

struct Limit {
  uint64_t bytes = kNoLimit;
  uint64_t used_bytes = 0;
  std::string path;

  uint64_t free_bytes() const { return bytes - std::min(bytes, used_bytes); }
};

// Returns the limit of the cgroup or of one above it that leaves the least
// memory; nullopt if none can be read.
std::optional<Limit> TightestLimit(const std::string& root,
                                   const Cgroup& cgroup) {
  const bool is_v2 = cgroup.version == 2;
  const std::string base =
      absl::StrCat(root, "/sys/fs/cgroup", is_v2 ? "" : "/memory");
  std::optional<Limit> tightest;
  std::string path = absl::StartsWith(cgroup.path, "/") ? cgroup.path : "";
  if (path == "/") path.clear();
  while (true) {
    const std::string folder = base + path;
    const auto bytes =
        Number(folder + (is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto used =
        Number(folder + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
    if (bytes.has_value() && used.has_value()) {
      const Limit limit = {
          .bytes = std::min(*bytes, kNoLimit),
          .used_bytes = *used - std::min(*used, FileBytes(folder, is_v2)),
          .path = path.empty() ? "/" : path};
      if (!tightest.has_value() ||
          limit.free_bytes() < tightest->free_bytes()) {
        tightest = limit;
      }
    }
    if (path.empty()) return tightest;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

void CheckCgroupMemory(pid_t daemon, const std::string& root,
                       Findings* findings) {
  const std::optional<Cgroup> cgroup = CgroupOf(root, daemon);
  const std::optional<Limit> limit =
      cgroup.has_value() ? TightestLimit(root, *cgroup) : std::nullopt;
  if (!limit.has_value()) {
    findings->push_back(
        {Severity::kOk, "cgroup memory",
         cgroup.has_value()
             ? "no cgroup limits it, or none is to be seen here"
             : "the daemon's cgroup is not to be seen from here"});
    return;
  }
  const std::string which =
      absl::StrCat(" (cgroup v", cgroup->version, ", ", limit->path, ")");
  if (limit->bytes >= kNoLimit) {
    findings->push_back(
        {Severity::kOk, "cgroup memory",
         absl::StrCat("no limit; ", FormatBytes(limit->used_bytes), " used",
                      which)});
    return;
  }
  const std::string text =
      absl::StrCat(FormatBytes(limit->used_bytes), " of ",
                   FormatBytes(limit->bytes), " used", which);
  if (static_cast<double>(limit->used_bytes) <
      kNearlyFull * static_cast<double>(limit->bytes)) {
    findings->push_back({Severity::kOk, "cgroup memory", text});
    return;
  }
  findings->push_back(
      {Severity::kWarning, "cgroup memory",
       text + ": a load may be refused memory, or the kernel end the daemon",
       "raise MemoryMax= of its unit or the container's limit, or lower "
       "decode_memory_mib and pinned_budget_mib"});
}

}  // namespace datasetd::ctl
