// datasetctl load NAME: loads a dataset and shows the progress; with --dry_run,
// estimates the load instead.

#ifndef DATASETD_CLIENT_CTL_COMMANDS_LOAD_COMMAND_H_
#define DATASETD_CLIENT_CTL_COMMANDS_LOAD_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/ctl/command.h"

namespace datasetd::ctl {

class LoadCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "load"; }
  const char* help() const override;
  void AddTo(Arguments* arguments) override;
  int Run() override;

 private:
  absl::StatusOr<v1::DatasetSpec> Spec() const;
  int DryRun(const v1::DatasetSpec& spec);

  std::string name_, format_, path_, split_, device_, pretransforms_;
  std::string bad_samples_ = "fail";
  std::vector<std::string> options_;
  std::string residency_ = "device";
  uint32_t max_bad_samples_ = 100;
  uint64_t device_bytes_ = 0;
  bool is_private_ = false;
  bool is_pinned_ = false;
  bool is_dry_run_ = false;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_COMMANDS_LOAD_COMMAND_H_
