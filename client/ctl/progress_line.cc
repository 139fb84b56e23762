#include "client/ctl/progress_line.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

constexpr int kBarWidth = 24;
constexpr absl::Duration kTerminalInterval = absl::Milliseconds(100);
constexpr absl::Duration kPlainInterval = absl::Seconds(2);

}  // namespace

std::string FormatProgress(const v1::LoadProgress& progress, int bar_width) {
  if (progress.is_scanning()) {
    return absl::StrCat("scanning, ", progress.num_entries_scanned(),
                        " entries");
  }
  const double total = static_cast<double>(progress.num_samples());
  const double done =
      total > 0
          ? std::clamp(
                static_cast<double>(progress.num_samples_loaded()) / total, 0.0,
                1.0)
          : 0.0;
  std::string text;
  if (bar_width > 0) {
    const int filled = static_cast<int>(done * bar_width);
    absl::StrAppend(&text, "[", std::string(filled, '#'),
                    std::string(bar_width - filled, '.'), "] ");
  }
  // Rounded down, so that 100% means done.
  absl::StrAppendFormat(&text, "%3d%%  %d/%d samples",
                        static_cast<int>(done * 100),
                        progress.num_samples_loaded(), progress.num_samples());
  const double seconds = progress.elapsed_seconds();
  if (seconds > 0 && progress.loaded_bytes() > 0) {
    absl::StrAppend(
        &text, "  ",
        FormatBytes(static_cast<uint64_t>(
            static_cast<double>(progress.loaded_bytes()) / seconds)),
        "/s");
    if (done >= 1) {
      absl::StrAppend(&text, "  in ", FormatSeconds(seconds));
    } else if (done > 0) {
      absl::StrAppend(&text, "  ETA ",
                      FormatSeconds(seconds * (1 - done) / done));
    }
  }
  return text;
}

ProgressLine::ProgressLine(std::string name, std::FILE* out)
    : name_(std::move(name)),
      out_(out),
      is_terminal_(isatty(fileno(out)) == 1) {}

ProgressLine::~ProgressLine() {
  if (is_line_open_) std::fputs("\n", out_);
}

void ProgressLine::Show(const v1::Dataset& dataset, absl::Time now) {
  const v1::LoadProgress& progress = dataset.progress();
  const bool is_done = dataset.state() == v1::DATASET_STATE_READY;
  if (progress.num_samples() == 0 && !progress.is_scanning()) return;
  if (!is_done && now < next_) return;
  next_ = now + (is_terminal_ ? kTerminalInterval : kPlainInterval);
  const std::string text =
      FormatProgress(progress, is_terminal_ ? kBarWidth : 0);
  if (is_terminal_) {
    // Return to the first column and erase the old line.
    std::fprintf(out_, "\r%s  %s\x1b[K", name_.c_str(), text.c_str());
    is_line_open_ = true;
  } else {
    std::fprintf(out_, "%s  %s\n", name_.c_str(), text.c_str());
  }
  std::fflush(out_);
}

}  // namespace datasetd::ctl
