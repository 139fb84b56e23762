#include "client/ctl/load_command.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/ctl/datasets_command.h"
#include "client/ctl/output.h"
#include "client/ctl/progress_line.h"

namespace datasetd::ctl {

CLI::App* LoadCommand::AddTo(CLI::App& app) {
  CLI::App* const command = app.add_subcommand(
      "load",
      "Make a dataset resident, or attach to the one that the same arguments "
      "made. It stays when this command ends, until it is unloaded, or until "
      "its memory is needed and nobody uses it");
  command->add_option("name", name_, "1 to 128 of [A-Za-z0-9._-]")->required();
  command
      ->add_option("--format", format_,
                   "A reader: see `datasetctl status` for the daemon's")
      ->required();
  command
      ->add_option("--path", path_, "Read by the daemon, below its data roots")
      ->required();
  command->add_option("--split", split_, "Empty is the reader's default");
  command->add_option("--device", device_,
                      "cpu, cuda:N; empty is the daemon's first");
  command
      ->add_option("--option", options_, "KEY=VALUE for the reader; repeatable")
      ->allow_extra_args(false);
  return command;
}

int LoadCommand::Run() {
  v1::DatasetSpec spec;
  spec.set_name(name_);
  spec.set_format(format_);
  spec.set_path(path_);
  spec.set_split(split_);
  spec.set_device(device_);
  for (const std::string& option : options_) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0) {
      return FailUsage(absl::StrCat("--option ", option,
                                    ": expected KEY=VALUE"));
    }
    const std::string key = option.substr(0, equals);
    if (!spec.mutable_options()
             ->insert({key, option.substr(equals + 1)})
             .second) {
      return FailUsage(absl::StrCat("--option ", key, " is given twice"));
    }
  }
  auto client = Connect();
  if (!client.ok()) return Fail(client.status());
  absl::StatusOr<v1::Dataset> dataset;
  {
    ProgressLine line(name_, stderr);
    dataset = client->LoadDataset(spec, [&](const v1::Dataset& now) {
      line.Show(now, absl::Now());
      return true;
    });
  }
  if (!dataset.ok()) return Fail(dataset.status());
  return Print(flags().json ? ToJson(*dataset) : DescribeDataset(*dataset));
}

}  // namespace datasetd::ctl
