// Copies of samples for a client that has no feed.
//
// Samples with one size are made by a feed of one batch that only the daemon
// sees: the device's producer launches it in its user's turn, and its memory is
// charged like a feed's. Those that keep their own sizes are copied from where
// they lie. The data are sent in pages. While the client reads what was made by
// a feed the dataset is no longer used.

#ifndef DATASETD_SERVER_FEED_SAMPLE_READ_H_
#define DATASETD_SERVER_FEED_SAMPLE_READ_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "cuda/backend/backend.h"
#include "datasetd/v1/feed.pb.h"
#include "server/feed/feed_channel.h"
#include "server/feed/feed_datasets.h"
#include "server/feed/feed_fields.h"
#include "server/feed/feed_plan.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Where the answer goes.
struct ReadSink {
  // Sends a message. Blocks while the client is behind.
  std::function<absl::Status(const v1::ReadSamplesResponse& message)> send;
  std::function<bool()> is_cancelled;
};

struct ReadPlan {
  // Of the fields with one size; nullopt: none.
  std::optional<FeedPlan> feed;
  v1::FeedOptions options;  // of that feed
  // Of random windows: the first steps, and the number of the first row, by
  // which it draws.
  std::vector<int64_t> starts;
  uint64_t first_row = 0;
  v1::ReadInfo info;
  // In the order of info.fields and of the data.
  struct Part {
    // The dataset's field; nullopt: a field of the feed's slot.
    std::optional<size_t> packed;
    int64_t slot_offset_bytes = 0;
    int64_t size_bytes = 0;  // with the sizes of packed samples
  };
  std::vector<Part> parts;
  bool has_packed() const {
    return options.field_names_size() < info.fields_size();
  }
};

// Errors as FeedService.ReadSamples. `fields` are CompleteFieldOptions(
// request.fields()).
absl::StatusOr<ReadPlan> PlanRead(const v1::ReadSamplesRequest& request,
                                  FieldOptionsMap fields,
                                  const FeedDatasets& datasets,
                                  const TransformLimits& limits);

// The channel of a feed that makes one batch for this process.
class ReadChannel final : public FeedChannel {
 public:
  static absl::StatusOr<std::unique_ptr<ReadChannel>> Create();

  // Waits until the batch is complete, the feed was stopped, or `is_cancelled`,
  // which is asked now and then. Returns whether the batch is complete.
  bool Await(const std::function<bool()>& is_cancelled);

  void Publish(uint32_t slot, const ring::SlotDescriptor& batch) override;
  bool IsReleaseRequested(uint32_t, uint64_t) const override { return false; }
  uint64_t ReleaseDone(uint32_t) const override { return 0; }
  bool IsClientWaiting() const override { return true; }
  std::optional<ring::SeekRequest> ReadSeek() override { return std::nullopt; }
  void SetIdle(bool) override {}
  int wake_descriptor() const override { return wake_.get(); }
  void Close() override;
  uint64_t waited_nanoseconds() const override { return 0; }
  absl::Span<const int> descriptors() const override { return {}; }

 private:
  explicit ReadChannel(FileDescriptor wake) : wake_(std::move(wake)) {}

  const FileDescriptor wake_;
  Mutex mutex_;
  bool is_published_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// Sends the message with `info`, then the data: of `slot`, which may be null,
// and of the packed samples. The uses of `datasets` may have ended if there are
// none.
absl::Status SendSamples(const v1::ReadSamplesRequest& request,
                         const ReadPlan& plan, uid_t uid, const uint8_t* slot,
                         Backend& backend, const FeedDatasets& datasets,
                         const ReadSink& sink);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SAMPLE_READ_H_
