#include "client/ctl/preview/picture_numbers.h"

#include <algorithm>
#include <cmath>

namespace datasetd::ctl {
namespace {

// Returns the value of a channel from one value for all or one per channel.
double OfChannel(const google::protobuf::RepeatedField<double>& values,
                 int channel) {
  if (values.empty()) return 0.0;
  return values[std::min(channel, values.size() - 1)];
}

}  // namespace

PictureNumbers::PictureNumbers(v1::Dtype dtype, const v1::Pipeline& pipeline) {
  for (int c = 0; c < 4; ++c) {
    bool is_uint8 = dtype == v1::DTYPE_UINT8;
    scale_[c] = is_uint8 ? 1.0 : 1.0 / 255.0;
    offset_[c] = 0.0;
    for (const v1::Transform& op : pipeline.transforms()) {
      if (op.has_to_dtype() && is_uint8 &&
          op.to_dtype().dtype() != v1::DTYPE_UINT8) {
        if (op.to_dtype().scale()) scale_[c] /= 255.0;
        is_uint8 = false;
      } else if (op.has_normalize()) {
        const double std = OfChannel(op.normalize().std(), c);
        scale_[c] /= std;
        offset_[c] = (offset_[c] - OfChannel(op.normalize().mean(), c)) / std;
      }
    }
  }
}

uint8_t PictureNumbers::Level(int channel, float number) const {
  const double level = (number - offset_[channel]) / scale_[channel];
  // Also true for NaN.
  if (!(level > 0.0)) return 0;
  return static_cast<uint8_t>(std::nearbyint(std::min(level, 255.0)));
}

}  // namespace datasetd::ctl
