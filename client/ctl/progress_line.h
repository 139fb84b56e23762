// Shows the progress of a load: one changing line on a terminal, occasional
// lines elsewhere. Writes nothing for datasets that were already loaded.

#ifndef DATASETD_CLIENT_CTL_PROGRESS_LINE_H_
#define DATASETD_CLIENT_CTL_PROGRESS_LINE_H_

#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "datasetd/v1/dataset.pb.h"

namespace datasetd::ctl {

// Returns the progress without the name: a bar of `bar_width` characters (none
// if 0), percentage, samples, rate and time left; or the state of the scan.
std::string FormatProgress(const v1::LoadProgress& progress, int bar_width);

// Not thread-safe. Borrows the stream.
class ProgressLine {
 public:
  ProgressLine(std::string name, std::FILE* out);
  // Ends the changing line.
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
