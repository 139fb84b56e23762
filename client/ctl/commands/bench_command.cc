#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/child_process.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/output.h"
#include "client/ctl/temporary_directory.h"

namespace datasetd::ctl {
namespace {

// Read by client/python/datasetd/_loader/benchmark.py.
constexpr char kDirectoryVariable[] = "DATASETD_BENCH_DIRECTORY";
constexpr char kStepsVariable[] = "DATASETD_BENCH_STEPS";
constexpr char kRoundsVariable[] = "DATASETD_BENCH_ROUNDS";

// Returns the reports of all loaders, sorted by pid.
std::vector<nlohmann::json> ReadReports(const std::string& directory) {
  std::vector<nlohmann::json> reports;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(directory, ignored)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    nlohmann::json report =
        nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (report.is_object()) reports.push_back(std::move(report));
  }
  std::sort(reports.begin(), reports.end(),
            [](const nlohmann::json& a, const nlohmann::json& b) {
              return a.value("pid", 0) < b.value("pid", 0);
            });
  return reports;
}

std::string Milliseconds(const nlohmann::json& report, const char* key) {
  return absl::StrFormat("%.3f ms", report.value(key, 0.0) * 1e3);
}

// Below zero the noise of the measurement is larger than the data's share.
std::string DataShare(const nlohmann::json& report) {
  const double share = report.value("data_share", 0.0);
  return share < 0 ? "not measurable" : absl::StrFormat("%.1f%%", share * 100);
}

std::string Table(const std::vector<nlohmann::json>& reports) {
  std::vector<std::vector<std::string>> rows = {
      {"PID", "DATASET", "BATCH", "STEP", "WITH A CONSTANT BATCH", "WAITED",
       "DATA"}};
  for (const nlohmann::json& report : reports) {
    rows.push_back({absl::StrCat(report.value("pid", 0)),
                    report.value("dataset", std::string()),
                    absl::StrCat(report.value("batch_size", 0)),
                    Milliseconds(report, "loader_seconds"),
                    Milliseconds(report, "constant_seconds"),
                    Milliseconds(report, "waited_seconds"), DataShare(report)});
  }
  return FormatTable(rows);
}

constexpr char kLegend[] =
    "\nTimes are of one step, medians of the rounds. DATA is the part of STEP "
    "that a constant\nbatch saves. WAITED is the part of that in which the "
    "program asked for a batch and\nhad to wait; the rest is that each batch "
    "is "
    "new to the processor's caches, and that\nthe daemon works on the same "
    "cores or GPU at the same time. With WAITED near 0 more\nprefetching does "
    "not help: fewer or cheaper transforms, or more cores, do.\n";

class BenchCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "bench"; }
  const char* help() const override {
    return "Run COMMAND, a Python training program that uses "
           "datasetd.DataLoader, and report the share of a step "
           "that is spent on data. Rounds of steps on the loader's "
           "batches alternate with rounds on one constant batch. "
           "The program is ended after the measurement; discard "
           "what it trained";
  }

  void AddTo(Arguments* arguments) override {
    arguments->Add("--steps", &num_steps_, "Steps per round")
        .Positive()
        .ShowDefault();
    arguments->Add("--rounds", &num_rounds_, "Rounds of each kind")
        .Positive()
        .ShowDefault();
    arguments->AddCommandLine(&command_);
  }

  int Run() override {
    if (command_.empty()) return FailUsage(kNoCommandLine);
    const auto directory = TemporaryDirectory::Create();
    if (!directory.ok()) return Fail(directory.status());
    ChildProcess::Options child;
    child.arguments = command_;
    child.environment = {{kDirectoryVariable, (*directory)->path()},
                         {kStepsVariable, absl::StrCat(num_steps_)},
                         {kRoundsVariable, absl::StrCat(num_rounds_)}};
    if (!flags().address.empty()) {
      child.environment["DATASETD_ADDRESS"] = flags().address;
    }
    child.output_to_stderr = true;
    const auto pid = ChildProcess::Start(child);
    if (!pid.ok()) return Fail(pid.status());
    // The terminal signals the command, too; this process waits for its end.
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    int status = 0;
    while (waitpid(*pid, &status, 0) != *pid) {
      if (errno != EINTR) return Fail(absl::ErrnoToStatus(errno, "waitpid"));
    }
    const std::vector<nlohmann::json> reports =
        ReadReports((*directory)->path());
    if (reports.empty()) {
      return Fail(absl::FailedPreconditionError(absl::StrCat(
          command_[0], " ", DescribeWaitStatus(status),
          " before anything was measured: it needs a datasetd.DataLoader in "
          "Python, an epoch of at least 2 batches, and ",
          2 * (num_rounds_ + 1), " rounds of ", num_steps_,
          " steps; see --steps and --rounds")));
    }
    if (!flags().json) return Print(Table(reports) + kLegend);
    return Print(nlohmann::json(reports).dump(2) + "\n");
  }

 private:
  std::vector<std::string> command_;
  uint32_t num_steps_ = 50;
  uint32_t num_rounds_ = 5;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand(const GlobalFlags* flags) {
  return std::make_unique<BenchCommand>(flags);
}

}  // namespace datasetd::ctl
