// How far a load is: one line that changes on a terminal, a line now and then
// elsewhere. Writes nothing for what was there before.

#ifndef DATASETD_CLIENT_CTL_PROGRESS_LINE_H_
#define DATASETD_CLIENT_CTL_PROGRESS_LINE_H_

#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "datasetd/v1/dataset.pb.h"

namespace datasetd::ctl {

// Without the name: a bar of `bar_width` characters if that is not 0, percent,
// samples, rate, time left; or how far the scan is.
std::string FormatProgress(const v1::LoadProgress& progress, int bar_width);

// Not thread-safe. Borrows the stream.
class ProgressLine {
 public:
  ProgressLine(std::string name, std::FILE* out);
  // Ends the line that changes.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(const v1::Dataset& dataset, absl::Time now);

 private:
  const std::string name_;
  std::FILE* const out_;
  const bool is_terminal_;
  absl::Time next_ = absl::InfinitePast();
  bool is_line_open_ = false;
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PROGRESS_LINE_H_
