#include "client/index_sender.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/status_macros.h"

namespace datasetd::client {

IndexSender::IndexSender(std::shared_ptr<Session> session, uint64_t feed_id,
                         const v1::FeedOptions& options,
                         absl::Duration timeout)
    : session_(std::move(session)),
      feed_id_(feed_id),
      batch_size_(options.batch_size()),
      timeout_(timeout) {
  Seek(options.start().epoch(), options.start().batch());
}

void IndexSender::Seek(uint64_t epoch, uint64_t batch) {
  epoch_ = epoch;
  batch_ = batch;
  row_ = batch * batch_size_;
}

absl::Status IndexSender::Send(uint64_t generation, const IndexBlock& block,
                               uint64_t* num_sent) {
  *num_sent = 0;
  uint64_t num_rows = 0;
  for (const uint32_t size : block.batch_sizes) num_rows += size;
  if (num_rows != block.indices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("SendIndices: ", block.indices.size(),
                     " indices, and batch_sizes that sum up to ", num_rows));
  }
  if (block.first_row.has_value()) row_ = *block.first_row;
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
    grpc::ClientContext context;
    session_->Prepare(&context, timeout_);
    v1::SendIndicesResponse response;
    DATASETD_RETURN_IF_ERROR(session_->ToStatus(
        session_->feeds()->SendIndices(&context, request, &response)));
    const auto num_batches =
        static_cast<uint64_t>(request.batch_sizes_size());
    *num_sent += num_batches;
    batch_ += num_batches;
    row_ += rows;
  }
  if (block.ends_epoch) Seek(epoch_ + 1, 0);
  return absl::OkStatus();
}

}  // namespace datasetd::client
