// Inverts a pipeline's ToDtype and Normalize, so that a job's batches can be
// shown as pictures.
//
// Immutable; thread-safe.

#ifndef DATASETD_CLIENT_CTL_PREVIEW_PICTURE_NUMBERS_H_
#define DATASETD_CLIENT_CTL_PREVIEW_PICTURE_NUMBERS_H_

#include <cstdint>

#include "datasetd/v1/transform.pb.h"

namespace datasetd::ctl {

class PictureNumbers {
 public:
  // `dtype` is the resident image's; floating point images range from 0 to 1.
  PictureNumbers(v1::Dtype dtype, const v1::Pipeline& pipeline);

  // Returns 0 to 255; values outside are clamped, NaN becomes 0. REQUIRES:
  // channel is within 0..3.
  uint8_t Level(int channel, float number) const;

 private:
  // number = scale * level + offset, for each channel.
  double scale_[4];
  double offset_[4];
};

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_PREVIEW_PICTURE_NUMBERS_H_
