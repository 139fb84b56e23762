#include "client/feed/feed.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/connection/error_detail.h"
#include "client/connection/lease.h"
#include "client/connection/session.h"
#include "client/connection/unary_call.h"
#include "client/feed/feed_closer.h"
#include "client/feed/ring_pages.h"
#include "client/feed/slab.h"

namespace datasetd::client {
namespace {

// More than the number of kinds.
constexpr int kMaxImports = 4;
// Longest time between the end of a feed and the GOODBYE that explains it.
constexpr absl::Duration kGoodbyeTimeout = absl::Seconds(1);
// Longest time that a refused OpenFeed waits for closed feeds.
constexpr absl::Duration kCloseTimeout = absl::Seconds(1);

absl::Status ClosedError() {
  return WithDetail(absl::FailedPreconditionError("the feed is closed"),
                    ErrorDetail::kClosed);
}

// Maps what came with the lease. After an error nothing is mapped; `import`
// receives one that another export kind may avoid.
absl::Status Map(const v1::OpenFeedResponse& response,
                 const v1::FeedOptions& options,
                 AttachedDescriptors descriptors, FeedCore::Parts& parts,
                 absl::Status* import) {
  parts.event = std::move(descriptors.event);
  DATASETD_ASSIGN_OR_RETURN(
      parts.layout,
      SlotLayout::Create(response.layout(), response.slab().size_bytes(),
                         options.group_order().group_size()));
  DATASETD_ASSIGN_OR_RETURN(
      parts.pages,
      RingPages::Map(descriptors.daemon_page.get(),
                     descriptors.client_page.get(), parts.layout.num_slots()));
  absl::StatusOr<Slab> slab =
      Slab::Import(response.slab(), descriptors.slab.get());
  DATASETD_RETURN_IF_ERROR(parts.lease.SendImportResult(slab.status()));
  *import = slab.status();
  DATASETD_RETURN_IF_ERROR(slab.status());
  parts.slab = *std::move(slab);
  return absl::OkStatus();
}

// Attaches and imports after OpenFeed; `import` as for Map.
absl::StatusOr<FeedCore::Parts> Attach(Session* session,
                                       const v1::OpenFeedResponse& response,
                                       const v1::FeedOptions& options,
                                       absl::Span<const GuardedFd> arrays,
                                       const CallLimits& limits,
                                       absl::Status* import) {
  FeedCore::Parts parts;
  parts.cursor.batches_per_epoch = response.batches_per_epoch();
  parts.cursor.start_epoch = options.start().epoch();
  parts.cursor.start_batch = options.start().batch();
  if (response.batches_per_epoch() > 0 &&
      parts.cursor.start_batch >= response.batches_per_epoch()) {
    // The end of an epoch is the beginning of the next.
    ++parts.cursor.start_epoch;
    parts.cursor.start_batch = 0;
  }
  parts.cursor.has_client_order = options.has_client_order();
  AttachedDescriptors descriptors;
  DATASETD_ASSIGN_OR_RETURN(
      parts.lease,
      Lease::Attach(session->address(), session->token(), response.feed_id(),
                    arrays, limits, &descriptors));
  const absl::Status status =
      Map(response, options, std::move(descriptors), parts, import);
  if (!status.ok()) {
    // The daemon may free the slab at once.
    parts.lease.Detach();
    return status;
  }
  return parts;
}

}  // namespace

absl::StatusOr<Feed> Feed::Open(const std::shared_ptr<Session>& session,
                                const v1::FeedOptions& options,
                                const FeedArrays& arrays,
                                const CallLimits& limits) {
  DATASETD_RETURN_IF_ERROR(session->CheckProcess());
  v1::OpenFeedRequest request;
  *request.mutable_options() = options;
  DATASETD_RETURN_IF_ERROR(AddTo(request.mutable_options(), arrays));
  DATASETD_ASSIGN_OR_RETURN(const std::vector<GuardedFd> sealed, Seal(arrays));
  const auto open = [&](v1::OpenFeedResponse* response) {
    return session->ToStatus(
        UnaryCall(session.get(), request, limits, response));
  };
  std::string failures;
  bool was_late = false;
  for (int attempt = 0;; ++attempt) {
    v1::OpenFeedResponse response;
    absl::Status opened = open(&response);
    // Closed feeds of this process may hold what is missing.
    if (absl::IsResourceExhausted(opened) && FeedCloser::IsBusy() &&
        FeedCloser::Await(kCloseTimeout)) {
      opened = open(&response);
    }
    if (!opened.ok()) {
      if (failures.empty()) return opened;
      return absl::Status(
          opened.code(),
          absl::StrCat(std::string(opened.message()),
                       "; before that, this process could not import",
                       failures));
    }
    absl::Status import;
    absl::StatusOr<FeedCore::Parts> parts =
        Attach(session.get(), response, options, sealed, limits, &import);
    if (parts.ok()) {
      std::unique_ptr<IndexSender> sender;
      if (options.has_client_order()) {
        sender = std::make_unique<IndexSender>(session, response.feed_id(),
                                               options, limits);
      }
      return Feed(FeedCore::Create(*std::move(parts)), std::move(response),
                  std::move(sender));
    }
    if (absl::IsUnauthenticated(parts.status())) {
      // The token may be of the previous daemon: see Session::ToStatus.
      return session->ToStatus({grpc::StatusCode::UNAUTHENTICATED,
                                std::string(parts.status().message())});
    }
    // This process stood still for longer than the feed waits for it.
    if (absl::IsNotFound(parts.status()) && !was_late) {
      was_late = true;
      continue;
    }
    if (import.ok() || attempt + 1 == kMaxImports) return parts.status();
    request.add_excluded_exports(response.slab().kind());
    absl::StrAppend(&failures, failures.empty() ? " " : ", ",
                    v1::ExportKind_Name(response.slab().kind()), " (",
                    std::string(import.message()), ")");
  }
}

absl::StatusOr<Batch> Feed::Next(uint64_t stream, absl::Duration timeout) {
  if (core_ == nullptr) return ClosedError();
  absl::StatusOr<BatchInfo> info = core_->Next(stream, timeout);
  if (!info.ok()) return std::move(info).status();
  return Batch(core_, *info);
}

absl::Status Feed::Seek(uint64_t epoch, uint64_t batch) {
  if (core_ == nullptr) return ClosedError();
  DATASETD_RETURN_IF_ERROR(core_->Seek(epoch, batch));
  if (sender_ != nullptr) sender_->Seek(epoch, batch);
  return absl::OkStatus();
}

absl::Status Feed::SetWeights(absl::Span<const double> weights,
                              const CallLimits& limits) {
  if (core_ == nullptr) return ClosedError();
  DATASETD_ASSIGN_OR_RETURN(const GuardedFd sealed, SealWeights(weights));
  return core_->SetWeights(sealed, limits);
}

absl::Status Feed::SendIndices(const IndexBlock& block,
                               const SendLimits& limits) {
  if (core_ == nullptr) return ClosedError();
  if (!core_->is_this_process()) return ForkedError("this feed");
  if (sender_ == nullptr) {
    return absl::FailedPreconditionError(
        "SendIndices: the feed has the daemon's order; open it with "
        "client_order");
  }
  FeedCursor& cursor = core_->cursor();
  DATASETD_RETURN_IF_ERROR(cursor.CheckOrder());
  const IndexSender::Result result =
      sender_->Send(cursor.generation(), block, limits);
  cursor.AddSent(result.num_sent);
  if (result.is_unanswered) cursor.LoseOrder();
  if (result.status.ok() || absl::IsCancelled(result.status)) {
    return result.status;
  }
  // A daemon that ended the lease has told why and no longer knows the feed.
  return core_->ExplainedByLease(result.status, absl::IsNotFound(result.status)
                                                    ? kGoodbyeTimeout
                                                    : absl::ZeroDuration());
}

}  // namespace datasetd::client
