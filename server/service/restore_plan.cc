#include "server/service/restore_plan.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "server/dataset/caller.h"
#include "server/load/load_request.h"

namespace datasetd {
namespace {

uint32_t NumInterrupted(const v1::Manifest::Entry& entry) {
  return entry.num_interrupted() + (entry.is_suspect() ? 1 : 0);
}

absl::Status Refusal(const v1::Manifest::Entry& entry,
                     uint32_t num_interrupted_of_user) {
  constexpr char kAdvice[] =
      "; it is not loaded again by itself. To try again, load it with the same "
      "arguments, or push it; to forget it, unload it";
  if (entry.num_interrupted() >= kMaxInterruptedRestores) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the daemon ended ", entry.num_interrupted(),
        " times in a row while it restored this dataset, by a crash or a kill",
        kAdvice));
  }
  if (num_interrupted_of_user >= kMaxInterruptedRestoresOfUser) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon ended ", num_interrupted_of_user,
                     " times while it restored datasets of uid ",
                     entry.owner_uid(), ", by a crash or a kill", kAdvice));
  }
  return absl::OkStatus();
}

}  // namespace

RestorePlan PlanRestore(const std::vector<v1::Manifest::Entry>& entries,
                        uint32_t daemon_uid) {
  std::map<uint32_t, uint32_t> num_interrupted;  // by uid
  for (const v1::Manifest::Entry& entry : entries) {
    num_interrupted[entry.owner_uid()] += NumInterrupted(entry);
  }
  RestorePlan plan;
  for (const v1::Manifest::Entry& entry : entries) {
    const uint32_t uid = entry.owner_uid();
    const auto request = CheckRequest(entry.spec());
    if (!request.ok()) {
      plan.left_out.emplace_back(entry.spec().name(), request.status());
      continue;
    }
    plan.datasets.push_back(
        {.spec = *request->spec,
         .owner = {.session_id = Caller::kEarlierSession,
                   .uid = uid,
                   .is_privileged = uid == 0 || uid == daemon_uid},
         .content_hash = entry.content_hash(),
         .is_suspect = NumInterrupted(entry) > 0,
         .refusal = Refusal(entry, num_interrupted[uid])});
  }
  return plan;
}

}  // namespace datasetd
