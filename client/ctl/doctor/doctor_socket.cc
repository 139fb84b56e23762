#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/doctor/doctor_checks.h"

namespace datasetd::ctl {
namespace {

constexpr char kFixMode[] =
    "set SocketMode=0660 in datasetd.socket, or socket_mode: \"0660\" where "
    "the "
    "daemon makes its sockets";

std::string GroupName(gid_t gid) {
  const group* const entry = getgrgid(gid);
  return entry == nullptr ? absl::StrCat(gid) : std::string(entry->gr_name);
}

std::string UserName(uid_t uid) {
  const passwd* const entry = getpwuid(uid);
  return entry == nullptr ? absl::StrCat(uid) : std::string(entry->pw_name);
}

bool IsInGroup(gid_t gid) {
  if (gid == getegid()) return true;
  std::vector<gid_t> groups(
      static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(count, 0)));
  return std::find(groups.begin(), groups.end(), gid) != groups.end();
}

// True if the group lists this user, even if this login predates that.
bool IsListedInGroup(gid_t gid) {
  const group* const entry = getgrgid(gid);
  if (entry == nullptr) return false;
  const std::string self = UserName(geteuid());
  for (char** member = entry->gr_mem; *member != nullptr; ++member) {
    if (self == *member) return true;
  }
  return false;
}

constexpr char kSocketCheck[] = "socket";

bool CheckFile(const std::string& path, Findings* findings) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    if (errno == EACCES) {
      findings->push_back(
          {Severity::kFault, kSocketCheck,
           absl::StrCat(path, " lies in a directory that ", UserName(geteuid()),
                        " may not enter"),
           "become a member of the group of that directory "
           "(usermod --append --groups datasetd USER) and log in again"});
    } else {
      findings->push_back(
          {Severity::kFault, kSocketCheck,
           absl::StrCat(path, ": ", std::strerror(errno)),
           "start the daemon (systemctl start datasetd), or name its socket by "
           "--address or $DATASETD_ADDRESS, or run with a daemon of its own: "
           "datasetctl run -- COMMAND"});
    }
    return false;
  }
  if (!S_ISSOCK(status.st_mode)) {
    findings->push_back({Severity::kFault, kSocketCheck,
                         absl::StrCat(path, " is no socket"),
                         "name the daemon's socket by --address"});
    return false;
  }
  const unsigned mode = status.st_mode & 07777;
  const std::string what =
      absl::StrFormat("%s is %s:%s %04o", path, UserName(status.st_uid),
                      GroupName(status.st_gid), mode);
  if (access(path.c_str(), R_OK | W_OK) != 0) {
    findings->push_back(
        {Severity::kFault, kSocketCheck,
         absl::StrCat(what, ", so ", UserName(geteuid()), " may not connect"),
         (mode & 0060) == 0060
             ? absl::StrCat("become a member of the group: usermod --append "
                            "--groups ",
                            GroupName(status.st_gid), " ", UserName(geteuid()),
                            ", and log in again")
             : std::string(kFixMode)});
    return false;
  }
  if ((mode & 0002) != 0) {
    findings->push_back(
        {Severity::kWarning, kSocketCheck,
         absl::StrCat(what, ": every user of this machine may connect"),
         kFixMode});
    return true;
  }
  findings->push_back({Severity::kOk, kSocketCheck, what});
  return true;
}

void CheckGroup(const std::string& path, Findings* findings) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return;
  const std::string name = GroupName(status.st_gid);
  const std::string self = UserName(geteuid());
  if (geteuid() == 0 || geteuid() == status.st_uid) {
    findings->push_back(
        {Severity::kOk, "group", absl::StrCat(self, " needs no group")});
  } else if (IsInGroup(status.st_gid)) {
    findings->push_back(
        {Severity::kOk, "group", absl::StrCat(self, " is in ", name)});
  } else if (IsListedInGroup(status.st_gid)) {
    findings->push_back(
        {Severity::kWarning, "group",
         absl::StrCat(self, " is in ", name, ", but this login is older"),
         absl::StrCat("log in again, or: newgrp ", name)});
  } else {
    findings->push_back(
        {Severity::kWarning, "group", absl::StrCat(self, " is not in ", name),
         absl::StrCat("usermod --append --groups ", name, " ", self)});
  }
}

}  // namespace

bool CheckSocket(const client::Address& address, Findings* findings) {
  const bool is_usable = CheckFile(address.socket_path, findings);
  CheckGroup(address.socket_path, findings);
  return is_usable;
}

}  // namespace datasetd::ctl
