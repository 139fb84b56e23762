// The samples of one dataset on their way to the daemon.
//
// Made by Client::PushDataset. Write takes the samples' bytes as
// PushDatasetRequest.block says, cut anywhere; Finish waits until the dataset
// is READY. Destroyed before Finish, it is broken off, and the daemon keeps
// nothing. For one thread at a time; the client outlives it.

#ifndef DATASETD_CLIENT_PUSH_H_
#define DATASETD_CLIENT_PUSH_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/connection/call_limits.h"
#include "client/connection/session.h"
#include "datasetd/v1/dataset.pb.h"

namespace datasetd::client {

class Push {
 public:
  // Waits until the daemon has checked the header and reserved the memory: a
  // name that is taken and a budget that is too small are errors here, before
  // the first sample is sent. Any error of DatasetService.PushDataset;
  // CANCELLED if on_wait returned false, which ends the push at any time.
  // `session` outlives the push.
  static absl::StatusOr<Push> Begin(Session* session,
                                    const v1::PushHeader& header,
                                    WaitFunction on_wait);
  Push(Push&& other) noexcept;
  Push& operator=(Push&& other) = delete;
  ~Push();

  // Copies `bytes`; waits while the daemon is behind. Any error of
  // DatasetService.PushDataset; CANCELLED if on_wait returned false.
  absl::Status Write(absl::Span<const uint8_t> bytes);

  // The READY dataset. Errors as Write. REQUIRES: called at most once.
  absl::StatusOr<v1::Dataset> Finish();

 private:
  class Call;
  explicit Push(std::unique_ptr<Call> call);

  std::unique_ptr<Call> call_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_PUSH_H_
