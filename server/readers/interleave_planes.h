// Three planes of bytes as pixels.

#ifndef DATASETD_SERVER_READERS_INTERLEAVE_PLANES_H_
#define DATASETD_SERVER_READERS_INTERLEAVE_PLANES_H_

#include <cstddef>
#include <cstdint>

namespace datasetd {

// Pixel i is planes[i], planes[plane_bytes + i], planes[2 * plane_bytes + i].
// REQUIRES: 3 * plane_bytes bytes at `planes` and at `pixels`, which do not
// overlap.
void InterleavePlanes(const uint8_t* planes, size_t plane_bytes,
                      uint8_t* pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_INTERLEAVE_PLANES_H_
