#include "cuda/kernels/host/float_converter.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {
namespace {

template <Dtype kDtype>
void Round(const float* values, int64_t count, int64_t stride, uint8_t* to,
           int64_t first) {
  for (int64_t i = 0; i < count; ++i) {
    StoreAs(to, first + i * stride, Rounded<kDtype>(values[i]));
  }
}

}  // namespace

void FloatConverter::Convert(const float* from, int64_t count, int64_t stride,
                             int channel, uint8_t* to) const {
  constexpr int64_t kBlock = 256;
  float values[kBlock];
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t n = std::min(kBlock, count - done);
    const float* block = from + done * stride;
    for (int64_t i = 0; i < n; ++i) values[i] = block[i * stride];
    ApplyValueOpsTo(field_, channel, n, values);
    VisitImageDtype(field_.out_dtype, [&](auto dtype) {
      Round<dtype>(values, n, stride, to, done * stride);
    });
  }
}

void FloatConverter::ConvertPlane(const float* from, int64_t count, int channel,
                                  uint8_t* to) const {
  if (IsBitCopy(field_)) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  Convert(from, count, 1, channel, to);
}

void FloatConverter::ConvertPixels(const float* from, int64_t count,
                                   uint8_t* to) const {
  if (IsBitCopy(field_)) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const int64_t size_bytes = DtypeSizeBytes(field_.out_dtype);
  for (int c = 0; c < field_.channels; ++c) {
    Convert(from + c, count / field_.channels, field_.channels, c,
            to + c * size_bytes);
  }
}

}  // namespace datasetd
