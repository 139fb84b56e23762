// A source of samples that a dataset is loaded from. Readers
// (server/readers/formats/formats.h) are sample sources.
//
// A source is plain or encoded (info().is_encoded):
//
//   plain    Read returns samples as they are in memory
//   encoded  Fetch gets one stored sample, Decode turns it into fields
//
// Samples are read in any order and on any number of threads at once, but those
// of a sequential source in order, by one thread at a time.

#ifndef DATASETD_SERVER_DATASET_SAMPLE_SOURCE_H_
#define DATASETD_SERVER_DATASET_SAMPLE_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/bad_samples.h"
#include "server/dataset/field_spec.h"
#include "server/dataset/load_notes.h"
#include "server/files/random_access_file.h"

namespace datasetd {

class RaggedIndex;  // ragged_index.h

struct SourceInfo {
  int64_t num_samples = 0;
  // At least one field; names are unique. In an encoded source, a ragged image
  // field has the shape of the first good sample, and others may differ in
  // height and width. In a plain source, images may be packed.
  std::vector<FieldSpec> fields;
  std::vector<std::string> class_names;  // may be empty
  std::vector<FileInfo> files;           // all files that were or will be read
  bool is_encoded = false;
  // A plain source to be read from the first sample to the last: a push and a
  // cache entry cannot be read otherwise, a compressed file only slowly.
  bool is_sequential = false;
  // The samples are still to come: ragged fields have the shape (1, 1, C).
  bool is_awaited = false;
  // Plain sources: bad samples found when the samples were first read.
  BadSampleReport bad_samples;
  // What the source holds and does not give, and what was decided about it.
  // Samples add to them: see SampleProbe.
  std::vector<LoadNote> notes;
  // One of the notes warns of a split beside this one with other classes.
  bool is_unlike_sibling = false;
};

// One sample as stored. Reused for many samples to keep its memory.
struct RawSample {
  // Meaning defined by the source: for example one file, or one part per field.
  std::vector<std::vector<uint8_t>> parts;
};

// Memory that a header-scanning thread keeps between samples.
inline constexpr int64_t kMaxKeptProbeBytes = 16 << 20;
// Frees parts that are larger than their share of `size_bytes`.
void KeepAtMost(int64_t size_bytes, RawSample& raw);
int64_t RawBytes(const RawSample& raw);

// The place of a sample in a file, and its size there.
struct SampleLocation {
  std::string path;
  int64_t offset = 0;
  int64_t size_bytes = 0;
};

// Facts from a sample's headers.
struct SampleProbe {
  // Sizes of the ragged fields, in order of the fields.
  std::vector<ImageSize> sizes;
  // Peak memory of Decode, including its result.
  int64_t decode_bytes = 0;
  // An image carries an EXIF orientation that is not applied.
  bool has_unapplied_exif = false;
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual const SourceInfo& info() const = 0;

  // Waits for the samples if info().is_awaited; then it is false, and ragged
  // fields have their shapes. Called before anything below.
  //   INVALID_ARGUMENT    they are not what was declared
  //   RESOURCE_EXHAUSTED  there is no room to keep them
  virtual absl::Status Receive();

  // Plain sources: returns the places and sizes of all samples of a packed
  // field, within the limits of the field's spec. Called once per packed field,
  // in order, before the first Read. Errors as Read.
  virtual absl::StatusOr<RaggedIndex> ReadIndex(size_t field);

  // Plain sources: reads samples first to first + count - 1. Field f goes to
  // fields[f], contiguous, of size count * info().fields[f].sample_bytes(); a
  // packed field is laid out by its index, with zeros between samples.
  // Thread-safe unless the source is sequential. REQUIRES: there are these
  // samples.
  //   DATA_LOSS         truncated or damaged; names file and offset
  //   INVALID_ARGUMENT  a value is out of range, such as a label
  //   UNAVAILABLE       the disk or a file server failed
  virtual absl::Status Read(int64_t first, int64_t count,
                            absl::Span<const absl::Span<uint8_t>> fields);

  // Called after the last sample was read.
  //   FAILED_PRECONDITION  a file was changed after the source was opened
  virtual absl::Status CheckUnchanged() const { return absl::OkStatus(); }

  // Encoded sources. All functions below are thread-safe; 0 <= index <
  // info().num_samples.
  //
  // The following errors mark a bad sample, which a load may skip; all others
  // end the load. The caller adds Locate's path to the error unless it is
  // already there.
  //   DATA_LOSS                     truncated or damaged
  //   INVALID_ARGUMENT              not decodable or too large
  //   NOT_FOUND, PERMISSION_DENIED  the file is missing or unreadable
  //   UNAVAILABLE                   the disk or a file server failed

  // Gets sample `index` as it is stored, without parsing it.
  virtual absl::Status Fetch(int64_t index, RawSample& raw) const;

  // Parses a sample's headers; works for sources without ragged fields too.
  virtual absl::Status Probe(int64_t index, const RawSample& raw,
                             SampleProbe& probe) const;

  // Decodes a sample: field f goes to fields[f], whose size is
  // info().fields[f].sample_bytes(), or follows from Probe's size if the field
  // is ragged. Does not block.
  virtual absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const;

  // By default the first file and the size of the fields.
  virtual SampleLocation Locate(int64_t index) const;

  // Called at most once, before the first Probe: ragged images may be decoded
  // at a lower resolution, of at least this height and width. Implemented by
  // sources with an option for it, such as fast_decode.
  virtual void AllowSmallerImages(ImageSize at_least) {}

  // Called before the first Probe: the samples of an encoded image field are
  // classes, one channel of values that are kept. Without `is_certain` only if
  // the first sample's can be. Returns whether the field is a mask now.
  virtual bool KeepClasses(size_t field, bool is_certain) {
    return info().fields[field].is_mask;
  }
};

// Returns `status` with the sample's path and offset added.
absl::Status LocatedStatus(const SampleSource& source, int64_t index,
                           const absl::Status& status);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_SAMPLE_SOURCE_H_
