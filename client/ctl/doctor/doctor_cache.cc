#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

constexpr char kCheck[] = "cache disk";
// Directory set by CacheDirectory=datasetd of the systemd unit.
constexpr char kDefaultCacheDirectory[] = "/var/cache/datasetd";
// With less, the next load is unlikely to be cached.
constexpr uint64_t kMinFreeBytes = 1 << 30;

constexpr char kFixDirectory[] =
    "create it for the daemon's user, with mode 0700, and name it in "
    "ReadWritePaths= of its unit (for /var/cache/datasetd "
    "CacheDirectory=datasetd does both), or correct cache.directory";

}  // namespace

void CheckCache(const std::string& directory, Findings* findings) {
  const std::string path =
      directory.empty() ? kDefaultCacheDirectory : directory;
  struct stat status;
  struct statvfs disk;
  std::string fault;
  if (stat(path.c_str(), &status) != 0 || statvfs(path.c_str(), &disk) != 0) {
    if (errno == ENOENT && directory.empty()) return;
    fault = absl::StrCat(path, ": ", std::strerror(errno));
  } else if (!S_ISDIR(status.st_mode)) {
    fault = absl::StrCat(path, " is no directory");
  }
  if (!fault.empty()) {
    findings->push_back({Severity::kFault, kCheck, fault, kFixDirectory});
    return;
  }
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::string what =
      absl::StrCat(path, ": ", FormatBytes(free_bytes), " free of ",
                   FormatBytes(uint64_t{disk.f_blocks} * disk.f_frsize));
  if (free_bytes < kMinFreeBytes) {
    findings->push_back(
        {Severity::kWarning, kCheck, what,
         "make room, or name a directory of another disk by cache.directory, "
         "and in ReadWritePaths= of the daemon's unit: what does not fit is "
         "read from its source at the next start"});
  } else {
    findings->push_back({Severity::kOk, kCheck, what});
  }
}

}  // namespace datasetd::ctl
