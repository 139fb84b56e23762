// Makes compressed data with zlib.

#ifndef DATASETD_TESTS_SERVER_READERS_DEFLATE_H_
#define DATASETD_TESTS_SERVER_READERS_DEFLATE_H_

#include <string>

namespace datasetd::testing {

// Values of `window_bits`, as deflateInit2 takes them.
inline constexpr int kGzip = 15 + 16;
inline constexpr int kZlib = 15;

std::string Deflate(const std::string& text, int window_bits);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_SERVER_READERS_DEFLATE_H_
