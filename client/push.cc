#include "client/push.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/connection/session.h"
#include "client/connection/unary_call.h"
#include "client/push_hasher.h"
#include "proto/push_metadata.h"

namespace datasetd::client {
namespace {

constexpr size_t kBlockBytes = 1 << 20;
// The daemon ends pushes of clients that it does not hear of.
constexpr absl::Duration kSilence = absl::Seconds(1);

absl::Status Cancelled(const std::string& name) {
  return absl::CancelledError(
      absl::StrCat("pushing dataset '", name, "' was cancelled"));
}

}  // namespace

// The gRPC stream, without a thread: waiting polls on_wait.
class Push::Call {
 public:
  Call(Session* session, const v1::PushHeader& header, WaitFunction on_wait)
      : session_(session), on_wait_(std::move(on_wait)) {
    session->Prepare(&context_, absl::InfiniteDuration());
    writer_ = session->datasets()->AsyncPushDataset(&context_, &response_,
                                                    queue_.get(), this);
    name_ = header.name();
    for (const v1::Field& field : header.fields()) {
      sample_bytes_.push_back(SampleBytes(field));
    }
    is_open_ = Await();
    if (!is_open_) return;
    *request_.mutable_header() = header;
    writer_->Write(request_, this);
    is_open_ = Await();
    block_.reserve(kBlockBytes);
  }

  // Blocks until the daemon sends metadata with this key, after it has reserved
  // the name and the memory.
  absl::Status Begin(const v1::PushHeader& header) {
    if (is_open_) {
      writer_->ReadInitialMetadata(this);
      is_open_ = Await();
    }
    if (is_open_) {
      const auto& metadata = context_.GetServerInitialMetadata();
      const auto begun = metadata.find(kPushBegunKey);
      is_open_ = begun != metadata.end();
      if (is_open_ && begun->second == kPushByDigests) hasher_.emplace(header);
    }
    return is_open_ ? absl::OkStatus() : Status();
  }

  ~Call() {
    if (!is_finished_) {
      context_.TryCancel();
      Drain();
    }
  }

  bool is_this_process() const { return session_->CheckProcess().ok(); }

  absl::Status Write(absl::Span<const uint8_t> bytes) {
    DATASETD_RETURN_IF_ERROR(CheckOpen());
    if (!hasher_.has_value()) return Append(bytes);
    DATASETD_RETURN_IF_ERROR(hasher_->Write(bytes));
    return BreakSilence();
  }

  absl::Status WriteSamples(absl::Span<const uint8_t* const> fields,
                            int64_t num_samples) {
    DATASETD_RETURN_IF_ERROR(CheckOpen());
    if (fields.size() != sample_bytes_.size() || num_samples < 0 ||
        absl::c_linear_search(sample_bytes_, 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("pushing dataset '", name_, "': ", num_samples,
                       " samples of ", fields.size(),
                       " fields, expected 0 or more of ", sample_bytes_.size(),
                       ", of which each has one size and is not "
                       "encoded"));
    }
    if (hasher_.has_value()) {
      DATASETD_RETURN_IF_ERROR(hasher_->WriteSamples(fields, num_samples));
      return BreakSilence();
    }
    for (size_t i = 0; i < static_cast<size_t>(num_samples); ++i) {
      for (size_t f = 0; f < fields.size(); ++f) {
        DATASETD_RETURN_IF_ERROR(Append(absl::MakeConstSpan(
            fields[f] + i * sample_bytes_[f], sample_bytes_[f])));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<v1::Dataset> Finish() {
    DATASETD_RETURN_IF_ERROR(Write({}));
    if (hasher_.has_value()) {
      DATASETD_ASSIGN_OR_RETURN(*request_.mutable_digests(), hasher_->Finish());
      DATASETD_RETURN_IF_ERROR(Send());
    }
    if (!block_.empty()) DATASETD_RETURN_IF_ERROR(Flush());
    if (is_open_) {
      writer_->WritesDone(this);
      Await();
    }
    DATASETD_RETURN_IF_ERROR(Status());
    session_->NoteReplicas(response_.dataset());
    return std::move(*response_.mutable_dataset());
  }

 private:
  absl::Status CheckOpen() const {
    DATASETD_RETURN_IF_ERROR(session_->CheckProcess());
    if (!is_finished_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("pushing dataset '", name_, "' has ended"));
  }

  // An empty block tells the daemon that hashing goes on.
  absl::Status BreakSilence() {
    return MonotonicNow() - sent_ < kSilence ? absl::OkStatus() : Flush();
  }

  absl::Status Append(absl::Span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const size_t size = std::min(bytes.size(), kBlockBytes - block_.size());
      block_.append(reinterpret_cast<const char*>(bytes.data()), size);
      bytes.remove_prefix(size);
      if (block_.size() < kBlockBytes) break;
      DATASETD_RETURN_IF_ERROR(Flush());
    }
    return absl::OkStatus();
  }

  absl::Status Flush() {
    request_.mutable_block()->swap(block_);
    block_.clear();
    return Send();
  }

  absl::Status Send() {
    if (is_open_) {
      writer_->Write(request_, this);
      is_open_ = Await();
      sent_ = MonotonicNow();
    }
    // The daemon ended the call; its status tells why.
    return is_open_ ? absl::OkStatus() : Status();
  }

  // Final status of the call.
  absl::Status Status() {
    const grpc::Status status = Drain();
    if (is_cancelled_) return Cancelled(name_);
    absl::Status told = session_->ToStatus(status);
    if (!absl::IsCancelled(told)) return told;
    return absl::AbortedError(
        absl::StrCat("the daemon broke off the push of dataset '", name_,
                     "': it was unloaded meanwhile, as a push that replaces it "
                     "does, or the daemon ends, or the device failed"));
  }

  grpc::Status Drain() {
    grpc::Status status;
    writer_->Finish(&status, this);
    Await();
    is_finished_ = true;
    return status;
  }

  // Whether the pending operation succeeded.
  bool Await() {
    return queue_.Await([this] {
      if (on_wait_ && !is_cancelled_ && !on_wait_()) {
        is_cancelled_ = true;
        context_.TryCancel();
      }
    });
  }

  Session* const session_;
  const WaitFunction on_wait_;
  std::string name_;
  grpc::ClientContext context_;
  v1::PushDatasetRequest request_;
  v1::PushDatasetResponse response_;
  std::unique_ptr<grpc::ClientAsyncWriter<v1::PushDatasetRequest>> writer_;
  CallQueue queue_;
  std::string block_;                 // bytes not sent yet
  std::vector<size_t> sample_bytes_;  // by field; 0: they differ
  // If the daemon compares digests, and takes no samples.
  std::optional<PushHasher> hasher_;
  absl::Duration sent_ = MonotonicNow();
  bool is_open_ = false;
  bool is_cancelled_ = false;
  bool is_finished_ = false;
};

absl::StatusOr<Push> Push::Begin(Session* session, const v1::PushHeader& header,
                                 WaitFunction on_wait) {
  DATASETD_RETURN_IF_ERROR(session->CheckProcess());
  auto call = std::make_unique<Call>(session, header, std::move(on_wait));
  DATASETD_RETURN_IF_ERROR(call->Begin(header));
  return Push(std::move(call));
}

Push::Push(std::unique_ptr<Call> call) : call_(std::move(call)) {}
Push::Push(Push&& other) noexcept = default;
Push::~Push() {
  // A child of fork() lacks gRPC's threads, so the call is leaked there.
  if (call_ != nullptr && !call_->is_this_process()) (void)call_.release();
}

absl::Status Push::Write(absl::Span<const uint8_t> bytes) {
  return call_->Write(bytes);
}

absl::Status Push::WriteSamples(absl::Span<const uint8_t* const> fields,
                                int64_t num_samples) {
  return call_->WriteSamples(fields, num_samples);
}

absl::StatusOr<v1::Dataset> Push::Finish() { return call_->Finish(); }

}  // namespace datasetd::client
