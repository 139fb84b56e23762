// Writes PNG files.

#ifndef DATASETD_CLIENT_CTL_PREVIEW_PNG_FILE_H_
#define DATASETD_CLIENT_CTL_PREVIEW_PNG_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace datasetd::ctl {

struct RgbImage {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3]
};

// Writes the image and replaces the file only when complete. A symbolic link
// stays, and the file it leads to is replaced. A pipe or a device is written
// to. Errors name the path: NOT_FOUND, PERMISSION_DENIED and similar; INTERNAL
// from the encoder.
absl::Status WritePng(const RgbImage& image, const std::string& path);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PREVIEW_PNG_FILE_H_
