// All feeds of the daemon, from OpenFeed until their memory is freed.
//
//   pending    created by OpenFeed; nothing is produced; the arrays that come
//              with the lease are read
//   attached   its lease connection is open; the producer fills it
//   ending     the lease has ended; running work finishes and memory is freed
//   lingering  nothing runs, but the client's process may still use the slab:
//              the slab stays, charged to its user, until the client says
//              DETACHED or its process is gone; then the feed is ending again
//
// A pending feed ends with its session, at its deadline, which does not pass
// while its arrays are read, or with arrays that are wrong. Everything but the
// slab is freed
// before `lingering`. Memory is freed on a separate thread and without a lock,
// since that may take long; until then the feed is listed and its memory is
// charged.
//
// Thread-safe. Lock order: this table, then the registry or the places.

#ifndef DATASETD_SERVER_FEED_FEED_TABLE_H_
#define DATASETD_SERVER_FEED_FEED_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/worker.h"
#include "cuda/backend/backend.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/caller.h"
#include "server/dataset/device_table.h"
#include "server/dataset/per_user_limit.h"
#include "server/dataset/user_places.h"
#include "server/feed/feed_channel.h"
#include "server/feed/feed_info.h"
#include "server/feed/feed_maker.h"
#include "server/feed/feed_record.h"
#include "server/feed/producer.h"
#include "server/feed/sample_read.h"
#include "server/order/client_order.h"
#include "server/pipeline/ops/transform_limits.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

class FeedTable {
 public:
  struct Options {
    size_t max_feeds = 1024;
    PerUserLimit max_feeds_per_user;
    absl::Duration attach_timeout = absl::Seconds(10);
    // Empty: the backend's preferred kind.
    std::vector<ExportKind> allowed_exports;
    TransformLimits transform_limits;
  };
  using Observer = std::function<void(const char* event, const FeedInfo& info)>;

  // All pointers outlive the table.
  static absl::StatusOr<std::unique_ptr<FeedTable>> Create(
      Options options, DeviceTable* devices, DatasetRegistry* datasets,
      FeedChannelFactory make_channel, const Clock* clock, Observer observer,
      Producer::FailureFunction on_failure);
  // Ends all feeds and frees their memory at the end of the process. Slabs in
  // use by clients stay valid for them where the kind of export allows it; a
  // slab exported by CUDA IPC handle is left to the end of the process.
  ~FeedTable();

  // Opens a feed. Errors as FeedService.OpenFeed.
  absl::StatusOr<v1::OpenFeedResponse> Open(const v1::OpenFeedRequest& request,
                                            const Caller& caller);

  // Explains what the ops of a feed draw for samples in an epoch. Errors as
  // FeedService.ExplainTransforms.
  absl::StatusOr<v1::ExplainTransformsResponse> Explain(
      const v1::ExplainTransformsRequest& request, const Caller& caller);

  // Sends copies of samples to `sink`, which ends the read by an error. Errors
  // as FeedService.ReadSamples.
  absl::Status Read(const v1::ReadSamplesRequest& request, const Caller& caller,
                    const ReadSink& sink);

  // Returns a serialized v1::GetFeedTransformsResponse, of a feed of the
  // caller's user. Errors as FeedService.GetFeedTransforms.
  absl::StatusOr<std::string> Transforms(uint64_t feed_id,
                                         const Caller& caller) const;

  // Returns the arrays that a pending feed waits for. The caller reads them,
  // then calls Attach, or EndLease, which cancels reading, too.
  //   NOT_FOUND  no such feed, another session's, it is not pending, or its
  //              arrays are being read
  absl::StatusOr<std::shared_ptr<OrderArrays>> TakeArrays(uint64_t feed_id,
                                                          uint64_t session_id);

  // Moves a feed from pending to attached. The table owns the returned
  // descriptors; they are valid until the lease ends. REQUIRES: the feed's
  // arrays were read, if it has any.
  //   NOT_FOUND  no such feed, another session's, or it is not pending
  absl::StatusOr<std::vector<int>> Attach(uint64_t feed_id,
                                          uint64_t session_id);

  // Checks the descriptors of other weights for an attached feed. Waits for
  // nobody.
  //   NOT_FOUND            no such feed, or it is not attached
  //   FAILED_PRECONDITION  it is not weighted
  //   INVALID_ARGUMENT     as OrderArrays::Check
  absl::Status CheckWeights(uint64_t feed_id,
                            absl::Span<const FileDescriptor> descriptors) const;
  // Reads the weights and gives them to the feed, which draws by them after its
  // client's next seek (Feed::SetWeights). May take long: blocks until the
  // feed's producer has them. For one caller at a time for each feed. REQUIRES:
  // CheckWeights is OK.
  //   NOT_FOUND, CANCELLED  the feed has ended
  //   INVALID_ARGUMENT      a weight is wrong
  //   RESOURCE_EXHAUSTED    the memory budget: there is one more table until
  //                         the feed no longer uses the one before
  absl::Status SetWeights(uint64_t feed_id,
                          absl::Span<const FileDescriptor> descriptors);

  // Appends to the client's order of a pending or attached feed. Errors as
  // ClientOrder::Append, and
  //   NOT_FOUND            no such feed, or another session's
  //   FAILED_PRECONDITION  the feed has no client order
  absl::Status SendIndices(uint64_t feed_id, uint64_t session_id,
                           const ClientOrder::Block& block);

  // Moves a feed from attached to ending: its lease connection has closed.
  void EndLease(uint64_t feed_id);

  // Frees the slab once the client's process says that it no longer uses it, or
  // has exited. Access that the process still has is revoked where possible.
  void FreeSlab(uint64_t feed_id);

  // Ends the session's pending feeds.
  void EndSession(uint64_t session_id);
  // Ends pending feeds whose deadline has passed.
  void ExpirePending();

  // Ends the pending feeds of a dataset (null: of all datasets), and returns
  // the attached ones, whose leases the caller ends.
  std::vector<uint64_t> DropPending(const Dataset* dataset);

  // As DropPending, for the feeds on a device that has failed.
  std::vector<uint64_t> DropDevice(const std::string& device);

  // Blocks until no feed is `ending`, or none of this user's, at most for
  // `timeout`. A feed that has ended no longer uses its dataset, and its memory
  // is free; that of arrays which are being read, soon.
  void AwaitEnded(absl::Duration timeout,
                  std::optional<uint32_t> uid = std::nullopt) const;

  // Returns feeds of datasets that the caller may see, ordered by id: at most
  // `limit` of those with an id greater than `after`.
  std::vector<FeedInfo> List(const Caller& caller = Caller(),
                             uint64_t after = 0, size_t limit = SIZE_MAX) const;
  size_t num_feeds() const;
  // By device name.
  std::map<std::string, FeedTotals> Totals() const;

  // For the watchdog, by device name; see producer.h.
  void PingProducers();
  std::map<std::string, ProducerProgress> ProducersProgress() const;

 private:
  FeedTable(Options options, DeviceTable* devices, DatasetRegistry* datasets,
            std::unique_ptr<FeedMaker> maker, const Clock* clock,
            Observer observer);
  void Tell(const char* event, const FeedRecord& record) const;
  absl::StatusOr<FeedRecord*> FindPending(uint64_t feed_id, uint64_t session_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<FeedRecord*> FindAttached(uint64_t feed_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the batch of a read; the returned record has its slab.
  absl::StatusOr<std::unique_ptr<FeedRecord>> MakeBatch(
      const v1::ReadSamplesRequest& request, ReadPlan& plan,
      const Caller& caller, const FeedDatasets& datasets,
      const std::function<bool()>& is_cancelled);
  // Records that the slab is no longer wanted; ends the feed if it lingers.
  void GiveUpSlab(uint64_t feed_id, SlabUse use);
  // Ends the pending feeds that satisfy `predicate`; `event` may be null.
  void EndPending(const char* event,
                  absl::FunctionRef<bool(const FeedRecord&)> predicate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As DropPending, for the feeds that satisfy `predicate`.
  std::vector<uint64_t> Drop(
      absl::FunctionRef<bool(const FeedRecord&)> predicate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the feed to `ending`. REQUIRES: it is not ending.
  void BeginEnd(FeedRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts a feed that is no longer `ending`.
  void CountEnded(const FeedRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues the feed's memory for the reaper. REQUIRES: it is `ending`, and
  // nothing of it runs.
  void Free(uint64_t feed_id);
  // On the reaper's thread: moves the feed to `lingering`, or removes it.
  void FreeNow(uint64_t feed_id);

  const Options options_;
  DeviceTable* const devices_;
  DatasetRegistry* const datasets_;
  const Clock* const clock_;
  const Observer observer_;
  // Declared before the records, which hold places. A feed has its place from
  // before its memory is allocated until after it is freed.
  UserPlaces places_;

  mutable Mutex mutex_;
  std::map<uint64_t, std::unique_ptr<FeedRecord>> records_
      ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint32_t, int> num_ending_ ABSL_GUARDED_BY(mutex_);  // by user
  // Totals by device: number of feeds opened, and the counters of feeds that
  // have ended.
  std::map<std::string, FeedTotals> ended_ ABSL_GUARDED_BY(mutex_);
  // Declared last, so that the threads end before what they use.
  Worker reaper_{"reaper"};
  const std::unique_ptr<FeedMaker> maker_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_TABLE_H_
