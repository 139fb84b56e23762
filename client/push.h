// Upload of one dataset's samples to the daemon.
//
// Created by Client::PushDataset. Write takes the samples' bytes in the format
// of PushDatasetRequest.block, cut anywhere; Finish blocks until the dataset is
// READY. Destruction before Finish cancels the push, and the daemon keeps
// nothing. Thread-compatible. The client must outlive it.

#ifndef DATASETD_CLIENT_PUSH_H_
#define DATASETD_CLIENT_PUSH_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/connection/call_limits.h"
#include "datasetd/v1/dataset.pb.h"

namespace datasetd::client {

class Session;

class Push {
 public:
  // Blocks until the daemon has checked the header and reserved the memory, so
  // that a taken name or a small budget fails before the first sample is sent.
  // With header.accepts_same, waits for loads and pushes of the name, and for
  // its turn to be compared. Errors as
  // DatasetService.PushDataset, and CANCELLED if on_wait returned false, which
  // ends the push at any time. `session` must outlive the push.
  static absl::StatusOr<Push> Begin(Session* session,
                                    const v1::PushHeader& header,
                                    WaitFunction on_wait);
  Push(Push&& other) noexcept;
  Push& operator=(Push&& other) = delete;
  ~Push();

  // Copies `bytes`; blocks while the daemon is behind. Errors as Begin.
  absl::Status Write(absl::Span<const uint8_t> bytes);

  // Likewise the next samples by field: those of field f, one after the other,
  // are at fields[f]. INVALID_ARGUMENT unless all fields have one size and are
  // not encoded. REQUIRES: Write was called for whole samples.
  absl::Status WriteSamples(absl::Span<const uint8_t* const> fields,
                            int64_t num_samples);

  // Returns the READY dataset. Errors as Begin. REQUIRES: called at most once.
  absl::StatusOr<v1::Dataset> Finish();

 private:
  class Call;
  explicit Push(std::unique_ptr<Call> call);

  std::unique_ptr<Call> call_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_PUSH_H_
