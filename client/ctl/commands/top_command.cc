#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/ctl/commands/commands.h"
#include "client/ctl/commands/top_view.h"
#include "client/ctl/exit_code.h"

namespace datasetd::ctl {
namespace {

// Moves the cursor home and erases the screen.
constexpr char kClear[] = "\x1b[H\x1b[2J";

// Returns the part of the text that fits the terminal; all if its size is
// unknown.
std::string Screen(const std::string& text) {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 ||
      size.ws_col == 0) {
    return text;
  }
  // The last line is for the cursor.
  return FitTo(size.ws_row - 1, size.ws_col, text) + "\n";
}

class TopCommand final : public Command {
 public:
  using Command::Command;
  const char* name() const override { return "top"; }
  const char* help() const override {
    return "Show datasets and feeds live, with samples per second "
           "and wait times, until Ctrl-C. HELD is slots in use / "
           "total slots";
  }

  void AddTo(Arguments* arguments) override {
    arguments->Add("--interval", &interval_seconds_, "Seconds between updates")
        .Between(0.05, 3600.0)
        .ShowDefault();
    arguments->Add("--count", &count_, "Number of updates; 0: until Ctrl-C")
        .ShowDefault();
  }

  int Run() override {
    auto client = Connect();
    if (!client.ok()) return Fail(client.status());
    const bool is_screen = !flags().json && isatty(STDOUT_FILENO) != 0;
    auto before = Look(*client);
    if (!before.ok()) return Fail(before.status());
    for (uint64_t looks = 0; count_ == 0 || looks < count_; ++looks) {
      absl::SleepFor(absl::Seconds(interval_seconds_));
      auto now = Look(*client);
      if (!now.ok()) return Fail(now.status());
      if (is_screen) std::fputs(kClear, stdout);
      const int printed = Print(flags().json ? TopJson(*before, *now)
                                : is_screen  ? Screen(TopText(*before, *now))
                                             : TopText(*before, *now) + "\n");
      if (printed != kExitOk) return printed;
      before = std::move(now);
    }
    return kExitOk;
  }

 private:
  static absl::StatusOr<TopSample> Look(Client& client) {
    TopSample sample;
    DATASETD_ASSIGN_OR_RETURN(sample.status, client.GetStatus());
    DATASETD_ASSIGN_OR_RETURN(sample.datasets, client.ListDatasets());
    DATASETD_ASSIGN_OR_RETURN(sample.feeds, client.ListFeeds());
    sample.time = absl::Now();
    return sample;
  }

  double interval_seconds_ = 1;
  uint64_t count_ = 0;  // 0: until interrupted
};

}  // namespace

std::unique_ptr<Command> MakeTopCommand(const GlobalFlags* flags) {
  return std::make_unique<TopCommand>(flags);
}

}  // namespace datasetd::ctl
