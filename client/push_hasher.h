// The digests of the fields of a push, which a daemon compares with those of a
// dataset that it has.
//
// Threads of its own hash the samples: those that are given by field where they
// are, others in buffers of about 6 MiB. Not thread-safe.

#ifndef DATASETD_CLIENT_PUSH_HASHER_H_
#define DATASETD_CLIENT_PUSH_HASHER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/content_hasher.h"
#include "datasetd/v1/dataset.pb.h"

namespace datasetd::client {

// The bytes of a sample of the field; 0 if they differ.
size_t SampleBytes(const v1::Field& field);

class PushHasher {
 public:
  // REQUIRES: the daemon accepted the header, and asked for digests.
  explicit PushHasher(const v1::PushHeader& header);

  // The next bytes of the samples, cut anywhere. INVALID_ARGUMENT if they are
  // more than the header declares.
  absl::Status Write(absl::Span<const uint8_t> bytes);

  // The next samples: those of field f are at fields[f]. INVALID_ARGUMENT as
  // Write, or if the last Write ended within a sample. REQUIRES: one pointer of
  // each field.
  absl::Status WriteSamples(absl::Span<const uint8_t* const> fields,
                            int64_t num_samples);

  // INVALID_ARGUMENT if samples are missing. REQUIRES: the last call.
  absl::StatusOr<v1::PushDigests> Finish();

 private:
  struct Field {
    size_t sample_bytes = 0;
    std::vector<uint8_t> buffer;
  };
  struct Hashed {
    std::vector<uint8_t> buffer;
    ContentHasher::Ticket ticket = 0;
  };

  absl::Status TooMany() const;
  // Has the field's buffer hashed, and gives it another one.
  void Hash(size_t field);

  const int64_t num_samples_;
  std::vector<Field> fields_;
  size_t buffer_bytes_;
  int64_t num_written_ = 0;  // samples
  // Where the next byte belongs.
  size_t field_ = 0;
  size_t offset_ = 0;
  std::deque<Hashed> hashed_;
  ContentHasher hasher_;  // last: its threads read the buffers
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_PUSH_HASHER_H_
