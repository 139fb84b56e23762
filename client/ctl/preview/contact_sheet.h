// Contact sheet: one row per sample, with the original on the left, then its
// augmented versions in consecutive epochs.
//
// Pixels are enlarged by an integer factor. Grey images are shown grey; alpha
// shows the background.

#ifndef DATASETD_CLIENT_CTL_PREVIEW_CONTACT_SHEET_H_
#define DATASETD_CLIENT_CTL_PREVIEW_CONTACT_SHEET_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/ctl/preview/png_file.h"

namespace datasetd::ctl {

struct SampleImage {
  int height = 0;
  int width = 0;
  int num_channels = 0;         // 1, 3 or 4
  std::vector<uint8_t> pixels;  // [height, width, num_channels]
};

struct ContactRow {
  SampleImage original;
  std::vector<SampleImage> augmented;
};

// Returns the factor that makes the larger side about 96 pixels; at least 1.
int DefaultZoom(int height, int width);

// Returns RESOURCE_EXHAUSTED if `bytes` is more than a preview may take for
// `what`, a part of it such as "the sheet".
absl::Status CheckPreviewBytes(const char* what, double bytes);

// Errors: those of CheckPreviewBytes().
//
// REQUIRES: there is at least one row; all rows have equally many augmented
// images, all of the same size; zoom >= 1.
absl::StatusOr<RgbImage> MakeContactSheet(const std::vector<ContactRow>& rows,
                                          int zoom);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PREVIEW_CONTACT_SHEET_H_
