// Decodes one field of encoded samples from its bytes in a file. Immutable;
// thread-safe. Errors omit the file name.

#ifndef DATASETD_SERVER_READERS_IMAGES_ENCODED_FIELD_H_
#define DATASETD_SERVER_READERS_IMAGES_ENCODED_FIELD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/sample_source.h"
#include "server/readers/images/image_options.h"
#include "server/readers/npy_header.h"

namespace datasetd {

class EncodedField {
 public:
  enum class Kind {
    kImage,   // JPEG, PNG or BMP: uint8 [H, W, C], ragged; a mask, which is
              // one by its name, is a PNG whose values or indices are kept
    kNumber,  // an integer in ASCII: int64 []
    kNpy,     // one sample's .npy, with the first one's dtype and shape
  };

  // Determines the field from the first sample's `bytes`.
  //   INVALID_ARGUMENT, DATA_LOSS  the bytes are not of this kind, or are
  //                                damaged
  static absl::StatusOr<EncodedField> Make(const std::string& name, Kind kind,
                                           absl::Span<const uint8_t> bytes,
                                           const ImageOptions& options);

  const FieldSpec& spec() const { return spec_; }

  // Makes an image a mask, if the first sample's can be one or `is_certain`:
  // then other images are errors. Returns whether it is one.
  bool KeepClasses(bool is_certain);

  // Adds the size and orientation, if it is an image, and Decode's memory to
  // `probe`.
  absl::Status Probe(absl::Span<const uint8_t> bytes, ImageSize at_least,
                     SampleProbe& probe) const;

  // `result` has the size of the spec or, for a ragged image, of Probe.
  absl::Status Decode(absl::Span<const uint8_t> bytes, ImageSize at_least,
                      absl::Span<uint8_t> result) const;

 private:
  // OK if it is no mask, or a PNG that is decoded to the values in it.
  absl::Status CheckMask(absl::Span<const uint8_t> bytes) const;
  // The header of an array that has the first one's dtype and shape.
  absl::StatusOr<NpyHeader> CheckedHeader(
      absl::Span<const uint8_t> bytes) const;

  Kind kind_ = Kind::kImage;
  FieldSpec spec_;
  bool is_bool_ = false;
  bool may_be_mask_ = false;  // by the first sample
  ImageOptions options_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_ENCODED_FIELD_H_
