// Converts the bytes of a uint8 image to final output elements, on the host.
//
// A byte has 256 values, so a field's value chain is a table per channel. If
// the chain is [divide] [normalise] and the processor has suitable vectors, it
// is computed instead, provided that all 256 values of each channel match the
// table bit for bit.

#ifndef DATASETD_CUDA_KERNELS_HOST_BYTE_CONVERTER_H_
#define DATASETD_CUDA_KERNELS_HOST_BYTE_CONVERTER_H_

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/host/byte_vector.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// Lives on the stack of one call; construction takes about two microseconds.
// Immutable. Does not keep a reference to the field.
class ByteConverter {
 public:
  using Element = uint8_t;

  // Uses `vector` unless it is null or the chain does not allow it. REQUIRES:
  // field.is_image, in_dtype kUint8.
  explicit ByteConverter(const FieldProgram& field,
                         const ByteVector* vector = BestByteVector());

  bool is_vectorised() const { return vector_ != nullptr; }

  // True if every fill of the field is the output of some byte. fill_byte(move,
  // channel) is then that byte, and fill is gathered like pixels.
  bool has_fill_bytes() const { return has_fill_bytes_; }
  uint8_t fill_byte(int move_index, int channel) const {
    return fill_bytes_[move_index][channel];
  }

  // Converts `count` bytes of one channel to out_dtype. May bypass the caches:
  // call StreamFence() before another thread reads `to`.
  void ConvertPlane(const uint8_t* from, int64_t count, int channel,
                    uint8_t* to) const;

  // Converts `count` bytes of interleaved pixels, beginning with channel 0.
  // Otherwise like ConvertPlane.
  void ConvertPixels(const uint8_t* from, int64_t count, uint8_t* to) const;

 private:
  void MakeTables(const FieldProgram& field);
  bool MakeChain(const FieldProgram& field);
  bool IsChainExact(const ByteVector& vector) const;
  void FindFillBytes(const FieldProgram& field);

  Dtype out_dtype_;
  bool is_copy_;
  bool has_fill_bytes_ = true;
  const ByteVector* vector_ = nullptr;  // null: tables
  int num_channels_;
  VectorChain chain_;
  uint8_t fill_bytes_[kMaxMoves][kMaxChannels];
  // Value before rounding and output bits of each byte.
  float values_[kMaxChannels][256];
  uint32_t table_[kMaxChannels][256];
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_BYTE_CONVERTER_H_
