// The fields of a tf.train.Example. Immutable; thread-safe. Errors omit the
// file name.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_TF_FEATURES_H_
#define DATASETD_SERVER_READERS_ARCHIVES_TF_FEATURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/sample_source.h"
#include "server/readers/archives/tf_example.h"
#include "server/readers/images/encoded_field.h"
#include "server/readers/images/image_options.h"

namespace datasetd {

class TfFeatures {
 public:
  // Fields are taken from option `features` or, if it is empty, from the first
  // example.
  //   INVALID_ARGUMENT  a bad option, or an unsuitable first example; lists its
  //                     features
  static absl::StatusOr<TfFeatures> Make(absl::string_view option,
                                         absl::Span<const uint8_t> first,
                                         const ImageOptions& options);

  std::vector<FieldSpec> specs() const;

  absl::Status Probe(absl::Span<const uint8_t> example, ImageSize at_least,
                     SampleProbe& probe) const;
  absl::Status Decode(absl::Span<const uint8_t> example, ImageSize at_least,
                      absl::Span<const absl::Span<uint8_t>> fields) const;

 private:
  struct Entry {
    std::string feature;
    TfExample::Feature::Kind kind = TfExample::Feature::Kind::kBytes;
    EncodedField field;
  };

  static absl::StatusOr<Entry> ParseEntry(absl::string_view item,
                                          const TfExample& first,
                                          const ImageOptions& options);
  static std::vector<Entry> Infer(const TfExample& first,
                                  const ImageOptions& options);
  // What the example has for an entry, of the entry's kind; of bytes one value.
  static absl::StatusOr<const TfExample::Feature*> Find(
      const Entry& entry, const TfExample& example);

  std::vector<Entry> entries_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_TF_FEATURES_H_
