#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/describe.h"
#include "client/ctl/output.h"
#include "client/ctl/pretransforms_argument.h"
#include "client/ctl/progress_line.h"

namespace datasetd::ctl {
namespace {

class LoadCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "load"; }
  const char* help() const override {
    return "Load a dataset, or attach to the one loaded with the "
           "same arguments. It stays loaded after this command "
           "ends, until it is unloaded or evicted while unused to "
           "make room";
  }

  void AddTo(Arguments* arguments) override {
    arguments->Add("name", &name_, "1 to 128 of [A-Za-z0-9._-]").Required();
    arguments
        ->Add("--format", &format_,
              "Format of the source; `datasetctl status` lists the "
              "formats")
        .Required();
    arguments
        ->Add("--path", &path_,
              "Path of the source, below a data root of the daemon")
        .Required();
    arguments->Add("--split", &split_,
                   "Split of the dataset; default: that of the format");
    arguments->Add("--classes", &classes_,
                   "Class names in the order of their labels, as cat,dog, or "
                   "@NAME: those of dataset NAME. For formats that derive "
                   "classes; another class fails the load");
    arguments->AddFlag("--ignore_other_classes", &ignores_other_classes_,
                       "Leave out samples of classes not in --classes");
    arguments->Add("--device", &device_,
                   "cpu, cuda:N or GPU-UUID; a list or `each`: a replica on "
                   "several GPUs; `shard` or shard:cuda:0,cuda:1: divided "
                   "over several GPUs; default: the daemon's first device");
    arguments
        ->Add("--option", &options_,
              "Option of the format, as KEY=VALUE; repeatable")
        .OneValueEach();
    arguments->Add("--pretransforms", &pretransforms_,
                   "Transforms applied once to the images, at load: a JSON "
                   "list of Transform messages, or @FILE");
    arguments
        ->Add("--bad_samples", &bad_samples_,
              "How to treat samples that cannot be read or decoded")
        .OneOf({"fail", "skip", "replace"})
        .ShowDefault();
    arguments
        ->Add("--max_bad_samples", &max_bad_samples_,
              "Fail the load if more samples are skipped or replaced")
        .ShowDefault();
    arguments
        ->Add("--residency", &residency_,
              "Where to keep the samples: on the device; pinned in "
              "host memory; split: the first --device_bytes on the "
              "device, the rest pinned; auto: as many on the device as "
              "its budget allows; mapped: in a mapped cache file, on "
              "the host only")
        .OneOf({"device", "pinned", "split", "auto", "mapped"})
        .ShowDefault();
    arguments->Add("--device_bytes", &device_bytes_,
                   "With --residency split: bytes of samples to keep on the "
                   "device (on each device of a shard)");
    arguments->AddFlag("--private", &is_private_,
                       "Hide the dataset from other users except root");
    arguments->AddFlag("--pin", &is_pinned_,
                       "Never evict the dataset to make room; allowed for root "
                       "and the daemon's user");
    arguments->AddFlag("--dry_run", &is_dry_run_,
                       "Scan the source and report what a load would find and "
                       "need, without loading");
  }

  int Run() override {
    auto spec = Spec();
    if (!spec.ok()) return FailUsage(std::string(spec.status().message()));
    auto client = Connect();
    if (!client.ok()) return Fail(client.status());
    const absl::Status status = SetClasses(*client, *spec);
    if (!status.ok()) return Fail(status);
    if (is_dry_run_) return DryRun(*client, *spec);
    absl::StatusOr<v1::Dataset> dataset;
    {
      ProgressLine line(name_, stderr);
      dataset = client->LoadDataset(*spec, [&](const v1::Dataset& now) {
        line.Show(now, absl::Now());
        return true;
      });
    }
    if (!dataset.ok()) return Fail(dataset.status());
    for (const v1::LoadNote& note : dataset->notes()) {
      if (note.is_warning()) Warn(note.text());
    }
    return Print(flags().json ? ToJson(*dataset) : DescribeDataset(*dataset));
  }

 private:
  absl::StatusOr<v1::DatasetSpec> Spec() const {
    v1::DatasetSpec spec;
    spec.set_name(name_);
    spec.set_format(format_);
    spec.set_path(path_);
    spec.set_split(split_);
    spec.set_device(device_);
    for (const std::string& option : options_) {
      const size_t equals = option.find('=');
      if (equals == std::string::npos || equals == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("--option ", option, ": expected KEY=VALUE"));
      }
      const std::string key = option.substr(0, equals);
      if (!spec.mutable_options()
               ->insert({key, option.substr(equals + 1)})
               .second) {
        return absl::InvalidArgumentError(
            absl::StrCat("--option ", key, " is given twice"));
      }
    }
    if (!pretransforms_.empty()) {
      DATASETD_ASSIGN_OR_RETURN((*spec.mutable_pretransforms())["image"],
                                ParsePretransforms(pretransforms_));
    }
    spec.set_bad_samples(bad_samples_ == "skip" ? v1::BAD_SAMPLE_POLICY_SKIP
                         : bad_samples_ == "replace"
                             ? v1::BAD_SAMPLE_POLICY_REPLACE
                             : v1::BAD_SAMPLE_POLICY_FAIL);
    spec.set_max_bad_samples(max_bad_samples_);
    v1::Residency residency = v1::RESIDENCY_DEVICE;
    v1::Residency_Parse(
        absl::StrCat("RESIDENCY_", absl::AsciiStrToUpper(residency_)),
        &residency);
    spec.set_residency(residency);
    spec.set_device_bytes(device_bytes_);
    spec.set_private_(is_private_);
    spec.set_pin(is_pinned_);
    return spec;
  }

  absl::Status SetClasses(Client& client, v1::DatasetSpec& spec) const {
    spec.set_ignore_other_classes(ignores_other_classes_);
    if (classes_.empty()) return absl::OkStatus();
    if (!absl::StartsWith(classes_, "@")) {
      for (const absl::string_view name : absl::StrSplit(classes_, ',')) {
        spec.add_class_names(std::string(name));
      }
      return absl::OkStatus();
    }
    const std::string other = classes_.substr(1);
    DATASETD_ASSIGN_OR_RETURN(const v1::Dataset dataset,
                              client.GetDataset(other));
    *spec.mutable_class_names() = dataset.class_names();
    if (!spec.class_names().empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--classes: dataset '", other, "' has no class names"));
  }

  int DryRun(Client& client, const v1::DatasetSpec& spec) {
    absl::StatusOr<v1::LoadEstimate> estimate;
    {
      ProgressLine line(name_, stderr);
      const absl::Time begin = absl::Now();
      estimate =
          client.EstimateLoad(spec, [&](const v1::EstimateLoadResponse& now) {
            v1::Dataset scanned;
            scanned.mutable_progress()->set_is_scanning(now.num_samples() == 0);
            scanned.mutable_progress()->set_num_entries_scanned(
                now.num_entries_scanned());
            scanned.mutable_progress()->set_num_samples(now.num_samples());
            scanned.mutable_progress()->set_num_samples_loaded(
                now.num_samples_scanned());
            scanned.mutable_progress()->set_elapsed_seconds(
                absl::ToDoubleSeconds(absl::Now() - begin));
            line.Show(scanned, absl::Now());
            return true;
          });
    }
    if (!estimate.ok()) return Fail(estimate.status());
    return Print(flags().json ? ToJson(*estimate)
                              : DescribeEstimate(*estimate));
  }

  std::string name_, format_, path_, split_, device_, pretransforms_;
  std::string classes_;
  bool ignores_other_classes_ = false;
  std::string bad_samples_ = "fail";
  std::vector<std::string> options_;
  std::string residency_ = "device";
  uint32_t max_bad_samples_ = 100;
  uint64_t device_bytes_ = 0;
  bool is_private_ = false;
  bool is_pinned_ = false;
  bool is_dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeLoadCommand(const GlobalFlags* flags) {
  return std::make_unique<LoadCommand>(flags);
}

}  // namespace datasetd::ctl
