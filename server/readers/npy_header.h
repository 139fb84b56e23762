// Parses the header of a .npy file, format versions 1.0, 2.0 and 3.0.

#ifndef DATASETD_SERVER_READERS_NPY_HEADER_H_
#define DATASETD_SERVER_READERS_NPY_HEADER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "server/files/random_access_file.h"

namespace datasetd {

struct NpyHeader {
  Dtype dtype = Dtype::kUint8;
  bool is_bool = false;  // stored as uint8, 0 or 1
  // C order; no extent is zero.
  std::vector<int64_t> shape;
  int64_t data_offset = 0;
  // Size of the array, at most INT64_MAX.
  int64_t data_bytes = 0;
};

// The array's meaning: samples, with at least one dimension, or one sample,
// which may have none.
enum class NpyArray { kSamples, kOneSample };

// Reads the header and checks that the file has exactly the declared size.
//   INVALID_ARGUMENT  not .npy; a dtype other than |u1 |b1 <i2 <i4 <i8 <f2 <f4
//                     <f8; Fortran order; no dimension, or zero samples
//   DATA_LOSS         shorter or longer than declared
absl::StatusOr<NpyHeader> ReadNpyHeader(const RandomAccessFile& file);

// Likewise for any bytes of total size `size_bytes`. `read` fills a buffer from
// an offset; the offsets increase without gaps. Errors start with `where`.
using NpyRead =
    std::function<absl::Status(int64_t offset, absl::Span<uint8_t> buffer)>;
absl::StatusOr<NpyHeader> ReadNpyHeader(const std::string& where,
                                        int64_t size_bytes, const NpyRead& read,
                                        NpyArray array = NpyArray::kSamples);

// Likewise for bytes in memory; errors have no name.
absl::StatusOr<NpyHeader> ParseNpy(absl::Span<const uint8_t> bytes,
                                   NpyArray array);

// Parses the dict literal only; data_offset stays 0. Accepts the three keys
// 'descr', 'fortran_order' and 'shape', each once, and nothing else: no
// expression is evaluated. Errors name the offset in `text`.
absl::StatusOr<NpyHeader> ParseNpyDict(absl::string_view text,
                                       NpyArray array = NpyArray::kSamples);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_NPY_HEADER_H_
