#include "client/feed/index_sender.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/connection/session.h"
#include "client/connection/unary_call.h"

namespace datasetd::client {
namespace {

// True if the daemon refused and took nothing.
bool IsRefusal(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::UNAUTHENTICATED:
      return true;
    default:
      return false;
  }
}

}  // namespace

IndexSender::IndexSender(std::shared_ptr<Session> session, uint64_t feed_id,
                         const v1::FeedOptions& options, CallLimits limits)
    : session_(std::move(session)),
      feed_id_(feed_id),
      batch_size_(options.batch_size()),
      limits_(std::move(limits)) {
  Seek(options.start().epoch(), options.start().batch());
}

void IndexSender::Seek(uint64_t epoch, uint64_t batch) {
  epoch_ = epoch;
  batch_ = batch;
  row_ = batch * batch_size_;
}

IndexSender::Result IndexSender::Send(uint64_t generation,
                                      const IndexBlock& block,
                                      const SendLimits& limits) {
  Result result;
  uint64_t num_rows = 0;
  for (const uint32_t size : block.batch_sizes) num_rows += size;
  if (num_rows != block.indices.size()) {
    result.status = absl::InvalidArgumentError(
        absl::StrCat("SendIndices: ", block.indices.size(),
                     " indices, and batch_sizes that sum up to ", num_rows));
    return result;
  }
  if (block.first_row.has_value()) row_ = *block.first_row;
  const absl::Duration timeout = limits.timeout.value_or(limits_.timeout);
  const absl::Duration deadline = MonotonicNow() + timeout;
  const int64_t* index = block.indices.data();
  size_t next = 0;
  while (next < block.batch_sizes.size()) {
    v1::SendIndicesRequest request;
    request.set_feed_id(feed_id_);
    request.set_generation(generation);
    request.mutable_start()->set_epoch(epoch_);
    request.mutable_start()->set_batch(batch_);
    request.set_first_row(row_);
    size_t rows = 0;
    while (next < block.batch_sizes.size() &&
           (rows == 0 || rows + block.batch_sizes[next] <= kMaxRowsPerCall)) {
      rows += block.batch_sizes[next];
      request.add_batch_sizes(block.batch_sizes[next++]);
    }
    request.mutable_indices()->Add(index, index + rows);
    index += rows;
    v1::SendIndicesResponse response;
    const grpc::Status status = UnaryCall(
        session_.get(), request,
        {.timeout = deadline - MonotonicNow(),
         .on_wait = limits.on_wait ? limits.on_wait : limits_.on_wait},
        &response);
    if (!status.ok()) {
      result.status = ToStatus(status, timeout);
      result.is_unanswered = !IsRefusal(status.error_code());
      return result;
    }
    const auto num_batches = static_cast<uint64_t>(request.batch_sizes_size());
    result.num_sent += num_batches;
    batch_ += num_batches;
    row_ += rows;
  }
  if (block.ends_epoch) Seek(epoch_ + 1, 0);
  return result;
}

absl::Status IndexSender::ToStatus(const grpc::Status& status,
                                   absl::Duration timeout) {
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat("SendIndices: the daemon did not take the indices within ",
                     absl::FormatDuration(timeout)));
  }
  absl::Status said = session_->ToStatus(status);
  if (absl::IsCancelled(said)) {
    return absl::CancelledError("SendIndices was broken off");
  }
  return said;
}

}  // namespace datasetd::client
