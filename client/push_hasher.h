// The digests of the fields of a push, which a daemon compares with those of a
// dataset that it has.
//
// Copies the samples to buffers of the fields, about 6 MiB, which threads of
// its own hash. Not thread-safe.

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

class PushHasher {
 public:
  // REQUIRES: the daemon accepted the header, and asked for digests.
  explicit PushHasher(const v1::PushHeader& header);

  // The next bytes of the samples, cut anywhere. INVALID_ARGUMENT if they are
  // more than the header declares.
  absl::Status Write(absl::Span<const uint8_t> bytes);

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
