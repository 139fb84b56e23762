// What a record of TensorFlow's tf.train.Example holds, found where it lies: a
// parsed message takes up to forty times the record's memory.
//
//   Example  1: Features
//   Features 1: map from a name to a Feature, which has one of
//               1: BytesList, 2: FloatList, 3: Int64List, each with 1: values

#ifndef DATASETD_SERVER_READERS_ARCHIVES_TF_EXAMPLE_H_
#define DATASETD_SERVER_READERS_ARCHIVES_TF_EXAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace datasetd {

// The record that was parsed outlives it and its features.
class TfExample {
 public:
  static constexpr size_t kMaxFeatures = 16384;

  class Feature {
   public:
    enum class Kind { kNothing, kBytes, kFloats, kInt64s };

    Kind kind() const { return kind_; }
    int64_t count() const { return count_; }
    // The last of the values. REQUIRES: kBytes, and there is one.
    absl::Span<const uint8_t> bytes() const { return bytes_; }
    // Of floats 4 each, of int64s 8.
    int64_t number_bytes() const;
    // All numbers, little-endian. REQUIRES: floats or int64s, and `result` has
    // number_bytes().
    void CopyNumbers(absl::Span<uint8_t> result) const;

   private:
    friend class TfExample;

    Kind kind_ = Kind::kNothing;
    absl::Span<const uint8_t> list_;  // the message
    int64_t count_ = 0;
    absl::Span<const uint8_t> bytes_;
  };

  //   DATA_LOSS         it is no such message
  //   INVALID_ARGUMENT  it has more than kMaxFeatures features
  static absl::StatusOr<TfExample> Parse(absl::Span<const uint8_t> record);

  const std::map<absl::string_view, Feature>& features() const {
    return features_;
  }

 private:
  static bool ParseFeature(absl::Span<const uint8_t> message, Feature* feature);
  // One of the map's.
  bool ParseEntry(absl::Span<const uint8_t> message);

  std::map<absl::string_view, Feature> features_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_TF_EXAMPLE_H_
