// A picture of samples: one row each, the original on the left, then what the
// transforms made of it in one epoch after the other.
//
// Pixels are enlarged by whole numbers, so that each stays one. Grey images are
// shown grey; alpha lets the background through.

#ifndef DATASETD_CLIENT_CTL_PREVIEW_CONTACT_SHEET_H_
#define DATASETD_CLIENT_CTL_PREVIEW_CONTACT_SHEET_H_

#include <cstdint>
#include <vector>

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

// What makes the larger side of such an image about 96 pixels; at least 1.
int DefaultZoom(int height, int width);

// REQUIRES: at least one row; all rows have equally many augmented images, and
// these are all of one size; zoom >= 1.
RgbImage MakeContactSheet(const std::vector<ContactRow>& rows, int zoom);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PREVIEW_CONTACT_SHEET_H_
