// The limits of one gRPC connection, enforced on the frame headers that pass in
// both directions.
//
// gRPC keeps a reset call until a thread has processed it, and answers every
// PING and SETTINGS without a limit of its own. Calls that the client waits for
// have no rate limit, since they delay that client only. Not thread-safe.

#ifndef DATASETD_SERVER_RPC_RPC_LEASH_H_
#define DATASETD_SERVER_RPC_RPC_LEASH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/rpc/http2_scanner.h"
#include "server/rpc/token_bucket.h"

namespace datasetd {

class RpcLeash {
 public:
  // Concurrent calls per connection, also announced by gRPC.
  static constexpr int kMaxStreams = 32;

  explicit RpcLeash(absl::Duration now);

  // Checks bytes on their way to gRPC. Returns null, or the reason to close the
  // connection; then the bytes must not be forwarded.
  const char* CheckToServer(absl::Span<const uint8_t> bytes,
                            absl::Duration now);
  // The number of `bytes` that open no more than `max_calls` calls: all of
  // them, or those before the next call. 0 if max_calls is 0 and the bytes
  // begin with a call or with a part of a frame header.
  size_t BytesBeforeCall(absl::Span<const uint8_t> bytes, int max_calls) const;
  // Observes gRPC's responses.
  void SeeToClient(absl::Span<const uint8_t> bytes);

  // Number of calls that are neither answered nor abandoned.
  int num_streams() const { return static_cast<int>(streams_.size()); }
  // True if the client has not sent all of one of them.
  bool has_unsent() const;
  // Number of calls abandoned since the last call of this function.
  int TakeAbandoned();
  // True if a GOAWAY frame may be inserted after what gRPC sent.
  bool is_answer_at_boundary() const { return to_client_.is_at_boundary(); }
  // The highest stream id, for that frame.
  uint32_t last_stream_id() const { return last_stream_id_; }
  // Arrival time of the first part of an incomplete frame other than DATA;
  // infinite if there is none.
  absl::Duration partial_since() const { return partial_since_; }

 private:
  struct Stream {
    uint32_t id;
    bool is_sent;  // the client has sent its end
  };

  // Returns null, or the reason to close the connection.
  const char* CheckFrame(const Http2Frame& frame, absl::Duration now);
  const char* CheckHeaders(const Http2Frame& frame, absl::Duration now);
  const char* CountControl(absl::Duration now);
  bool Opens(const Http2Frame& frame) const;
  void NoteEnd(const Http2Frame& frame);
  std::vector<Stream>::iterator Find(uint32_t stream_id);
  bool Close(uint32_t stream_id);

  Http2Scanner to_server_{/*has_preface=*/true};
  Http2Scanner to_client_{/*has_preface=*/false};
  std::vector<Stream> streams_;
  uint32_t last_stream_id_ = 0;
  size_t header_bytes_ = 0;  // size of the header block being received
  bool is_data_ = false;     // the last frame header was of DATA
  absl::Duration partial_since_ = absl::InfiniteDuration();
  int num_abandoned_ = 0;
  TokenBucket abandoned_;
  TokenBucket control_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_LEASH_H_
