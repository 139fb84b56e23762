// Samples in order: what a dataset is loaded from. Readers
// (server/readers/formats.h) are sample sources.
//
// A source is plain or encoded, as info().is_encoded says:
//
//   plain    whole samples, handed out by Read in order
//   encoded  samples that take work: ReadRaw fetches one as it lies on the
//            disk, Decode makes its fields of it. Both in any order, on any
//            number of threads at once.
//
// A plain source is for one thread.

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
#include "server/files/random_access_file.h"

namespace datasetd {

class RaggedIndex;  // ragged_index.h

struct SourceInfo {
  int64_t num_samples = 0;
  // At least one, names unique. Of an encoded source, an image field whose
  // is_ragged is set has the shape of the first good sample, and others may
  // differ in height and width. Of a plain source they may be packed.
  std::vector<FieldSpec> fields;
  std::vector<std::string> class_names;  // may be empty
  std::vector<FileInfo> files;           // all that was or will be read
  bool is_encoded = false;
  // Of a plain source: found when its samples were first read.
  BadSampleReport bad_samples;
};

// One sample as it lies on the disk. Made for one sample after another, so that
// its memory is used again.
struct RawSample {
  // What each part is, the source alone knows: one file, or one for each field.
  std::vector<std::vector<uint8_t>> parts;
};

// Memory that a thread which looks at headers keeps for its next sample.
inline constexpr int64_t kMaxKeptProbeBytes = 16 << 20;
// Frees the parts that are larger than their share of `size_bytes`.
void KeepAtMost(int64_t size_bytes, RawSample& raw);
int64_t RawBytes(const RawSample& raw);

// Where a sample lies, and how much of it ReadRaw fetches.
struct SampleLocation {
  std::string path;
  int64_t offset = 0;
  int64_t size_bytes = 0;
};

// What a sample's headers say.
struct SampleProbe {
  // Of each ragged field, in order of the fields.
  std::vector<ImageSize> sizes;
  // The most that Decode holds at once, its result included.
  int64_t decode_bytes = 0;
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual const SourceInfo& info() const = 0;

  // Plain: the places and sizes of a packed field's samples, all of them,
  // within what the field's spec says. Of each such field, in order, once,
  // before the first Read. Errors as Read's.
  virtual absl::StatusOr<RaggedIndex> ReadIndex(size_t field);

  // Plain: reads the next `count` samples: field f of them, contiguous, to
  // fields[f], whose size is count * info().fields[f].sample_bytes(); of packed
  // fields as the index says, zeros between them.
  // REQUIRES: count samples are left.
  //   DATA_LOSS         truncated or damaged; names file and offset
  //   INVALID_ARGUMENT  a value out of its range, such as a label
  virtual absl::Status Read(int64_t count,
                            absl::Span<const absl::Span<uint8_t>> fields);

  // Encoded, all of them thread-safe; 0 <= index < info().num_samples.
  //
  // Errors that make a bad sample, which a load may skip; all others end the
  // load. Whoever reports one puts Locate's path before it, unless it is there.
  //   DATA_LOSS          truncated or damaged
  //   INVALID_ARGUMENT   not of a kind that can be decoded, or too large
  //   NOT_FOUND, PERMISSION_DENIED  the file has gone, or is not to be read

  // Fetches sample `index` from the disk, and looks into nothing.
  virtual absl::Status ReadRaw(int64_t index, RawSample& raw) const;

  // Looks at a sample's headers. Also where no field is ragged.
  virtual absl::Status Probe(int64_t index, const RawSample& raw,
                             SampleProbe& probe) const;

  // Makes the fields of a sample: field f to fields[f], whose size is
  // info().fields[f].sample_bytes(), with Probe's size where it is ragged.
  // Waits for nothing.
  virtual absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const;

  virtual SampleLocation Locate(int64_t index) const;

  // Said once, before the first Probe: ragged images may be decoded at a lower
  // resolution, of at least this height and width. Done by sources that were
  // told to, by an option such as fast_decode.
  virtual void AllowSmallerImages(ImageSize at_least) {}
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_SAMPLE_SOURCE_H_
