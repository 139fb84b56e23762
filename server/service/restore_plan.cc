#include "server/service/restore_plan.h"

#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/dataset/caller.h"
#include "server/load/load_request.h"

namespace datasetd {
namespace {

// Returns how many daemons ended while they restored datasets of a user, by
// uid.
std::map<uint32_t, uint32_t> CountEnds(
    const std::vector<v1::Manifest::Entry>& entries) {
  std::map<uint32_t, uint32_t> num_ends;
  std::map<uint32_t, std::set<uint32_t>> shared_ends;
  for (const v1::Manifest::Entry& entry : entries) {
    const uint32_t uid = entry.owner_uid();
    num_ends[uid] += entry.num_interrupted();
    if (entry.shared_end() != 0 &&
        shared_ends[uid].insert(entry.shared_end()).second) {
      ++num_ends[uid];
    }
  }
  return num_ends;
}

absl::Status Refusal(const v1::Manifest::Entry& entry,
                     uint32_t num_ends_of_user) {
  constexpr char kAdvice[] =
      "; it is not loaded again by itself. To try again, load it with the same "
      "arguments, or push it; to forget it, unload it";
  if (entry.num_interrupted() >= kMaxInterruptedRestores) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the daemon ended ", entry.num_interrupted(),
        " times in a row while it restored this dataset, by a crash or a kill",
        kAdvice));
  }
  if (num_ends_of_user >= kMaxInterruptedRestoresOfUser) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon ended ", num_ends_of_user,
                     " times while it restored datasets of uid ",
                     entry.owner_uid(), ", by a crash or a kill", kAdvice));
  }
  return absl::OkStatus();
}

// Returns a request that CheckRequest accepts, of the same name and visibility.
v1::DatasetSpec NameOnly(const v1::DatasetSpec& spec) {
  v1::DatasetSpec name;
  name.set_name(spec.name());
  name.set_private_(spec.private_());
  return name;
}

absl::Status Unsupported(const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(),
                   "; this version of the daemon does not load it again. Load "
                   "it with other arguments, or push it; to forget it, unload "
                   "it"));
}

}  // namespace

std::vector<RestoredDataset> PlanRestore(
    const std::vector<v1::Manifest::Entry>& entries, uint32_t daemon_uid) {
  std::map<uint32_t, uint32_t> num_ends = CountEnds(entries);
  std::vector<RestoredDataset> datasets;
  for (const v1::Manifest::Entry& entry : entries) {
    const uint32_t uid = entry.owner_uid();
    const Caller owner = {.session_id = Caller::kEarlierSession,
                          .uid = uid,
                          .is_privileged = uid == 0 || uid == daemon_uid};
    const auto request = CheckRequest(entry.spec());
    if (!request.ok()) {
      datasets.push_back({.spec = NameOnly(entry.spec()),
                          .owner = owner,
                          .refusal = Unsupported(request.status())});
      continue;
    }
    datasets.push_back(
        {.spec = *request->spec,
         .owner = owner,
         .content_hash = entry.content_hash(),
         .is_suspect = entry.is_suspect() || entry.num_interrupted() > 0,
         .refusal = Refusal(entry, num_ends[uid])});
  }
  return datasets;
}

}  // namespace datasetd
