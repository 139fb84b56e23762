#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

std::string List(const v1::ListFeedsResponse& response) {
  if (response.feeds().empty()) return "no feeds\n";
  std::vector<std::vector<std::string>> rows = {
      {"ID", "NAME", "DATASET", "PID", "UID", "BATCH", "RANK", "SEED",
       "POSITION", "SAMPLES", "HELD", "JOB WAITED", "DAEMON WAITED", "SLAB"}};
  for (const v1::Feed& feed : response.feeds()) {
    rows.push_back(
        {absl::StrCat(feed.feed_id()), feed.name().empty() ? "-" : feed.name(),
         feed.dataset(), feed.pid() == 0 ? "-" : absl::StrCat(feed.pid()),
         absl::StrCat(feed.uid()), absl::StrCat(feed.batch_size()),
         absl::StrCat(feed.rank(), "/", feed.world_size()),
         absl::StrCat(feed.seed()),
         absl::StrCat(feed.position().epoch(), ":", feed.position().batch()),
         absl::StrCat(feed.num_samples()),
         absl::StrCat(feed.num_slots_held(), "/", feed.num_slots()),
         FormatSeconds(feed.client_wait_seconds()),
         FormatSeconds(feed.daemon_wait_seconds()),
         FormatBytes(feed.slab_bytes())});
  }
  return FormatTable(rows);
}

class FeedsCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "feeds"; }
  const char* help() const override {
    return "List open feeds. POSITION is the next batch "
           "(epoch:batch); HELD is slots in use / total slots";
  }

  int Run() override {
    auto client = Connect();
    if (!client.ok()) return Fail(client.status());
    v1::ListFeedsResponse response;
    const absl::Status status = client->Call(v1::ListFeedsRequest(), &response);
    if (!status.ok()) return Fail(status);
    return Print(flags().json ? ToJson(response) : List(response));
  }
};

}  // namespace

std::unique_ptr<Command> MakeFeedsCommand(const GlobalFlags* flags) {
  return std::make_unique<FeedsCommand>(flags);
}

}  // namespace datasetd::ctl
