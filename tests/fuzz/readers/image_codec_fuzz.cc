// Input: a byte of options, an image.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "server/readers/images/image_codec.h"

namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

bool IsBadImage(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kDataLoss;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr int kChannels[] = {0, 1, 3, 4};
  const datasetd::ImageOptions options = {
      .channels = kChannels[data[0] & 3],
      .apply_exif = (data[0] & 4) != 0,
      .fast_decode = (data[0] & 8) != 0,
      .max_pixels = 1 << 18,
  };
  const datasetd::ImageSize at_least = {data[0] >> 4, 5};
  // A copy of its own, so that a read behind its end is seen.
  const std::vector<uint8_t> file(data + 1, data + size);
  const auto header = datasetd::ProbeImage(file, options, at_least);
  if (!header.ok()) {
    Require(IsBadImage(header.status()), "another status of ProbeImage");
    return 0;
  }
  Require(header->size.height > 0 && header->size.width > 0 &&
              header->channels > 0 && header->channels <= 4,
          "an image of no size");
  Require(header->decode_bytes >= header->result_bytes(), "decode_bytes");
  std::vector<uint8_t> pixels(static_cast<size_t>(header->result_bytes()));
  const absl::Status status =
      datasetd::DecodeImage(file, options, at_least, absl::MakeSpan(pixels));
  Require(status.ok() || IsBadImage(status), "another status of DecodeImage");
  return 0;
}
