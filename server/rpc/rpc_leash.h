// What one client may do on one gRPC connection, judged by the headers of the
// frames that pass in both directions.
//
// gRPC keeps a call that its client has reset until a thread has looked at it,
// and answers every PING and SETTINGS: nothing but its user's leash bounds how
// many there are. Calls that are waited for cost their own client alone and
// have no rate. Not thread-safe.

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
  // Calls of one connection at a time: what gRPC tells its clients, too.
  static constexpr int kMaxStreams = 32;

  explicit RpcLeash(absl::Duration now);

  // Looks at bytes on their way to gRPC. Null, or why the connection must be
  // closed; the bytes must not go on then.
  const char* CheckToServer(absl::Span<const uint8_t> bytes,
                            absl::Duration now);
  // Looks at gRPC's answers.
  void SeeToClient(absl::Span<const uint8_t> bytes);

  // Calls that are neither answered nor given up.
  int num_streams() const { return static_cast<int>(streams_.size()); }
  // Calls that the client gave up since the last call of this function.
  int TakeAbandoned();
  // A frame that says goodbye may be added to what gRPC sent.
  bool is_answer_at_boundary() const { return to_client_.is_at_boundary(); }
  // The latest id of a call, for that frame.
  uint32_t last_stream_id() const { return last_stream_id_; }
  // When the frame of which only a part has come began, unless it carries data
  // of a call; infinite if there is none.
  absl::Duration partial_since() const { return partial_since_; }

 private:
  // Null, or why not.
  const char* CheckFrame(const Http2Frame& frame, absl::Duration now);
  const char* CheckHeaders(const Http2Frame& frame, absl::Duration now);
  const char* CountControl(absl::Duration now);
  bool Close(uint32_t stream_id);

  Http2Scanner to_server_{/*has_preface=*/true};
  Http2Scanner to_client_{/*has_preface=*/false};
  std::vector<uint32_t> streams_;
  uint32_t last_stream_id_ = 0;
  size_t header_bytes_ = 0;  // of the header block that is arriving
  bool is_data_ = false;     // the last frame header was that of data
  absl::Duration partial_since_ = absl::InfiniteDuration();
  int num_abandoned_ = 0;
  TokenBucket abandoned_;
  TokenBucket control_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_LEASH_H_
