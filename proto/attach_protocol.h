// Messages of the attach socket: SOCK_SEQPACKET, one struct per packet, native
// byte order (both ends are on one machine).
//
// Session:  client Hello{pid} -> daemon Welcome{token} with one descriptor, a
//           non-blocking stream socket that speaks gRPC, or Refused. The RPCs
//           on that socket are the session's. The end of either connection is
//           that of the session, of both and of its RPCs. The token names the
//           session to AttachFeed. The daemon says Goodbye when it drains or
//           ends the session; one that drains answers Hello and AttachFeed with
//           Goodbye.
// Lease:    client AttachFeed{token, feed_id} with the arrays that the feed's
//           options call for -> daemon Attached with the file
//           descriptors daemon page, client page, eventfd and, where the slab
//           is a descriptor, the slab; or Refused. Then the client sends
//           ImportResult once, Closing when the loader is closed before its
//           last tensor is gone, and Detached when both are. The daemon sends
//           Goodbye before it closes on purpose. End of file ends the lease.
//           While it lasts, the client of a weighted feed may send SetWeights
//           with other weights, as the array below -> daemon WeightsAnswer,
//           after which the client may send the next one. Batches after the
//           ring's next seek are drawn by them; without one nothing changes.
//           Weights that are wrong change nothing, and the feed goes on.
//
// Arrays:   of FeedOptions, in this order, those that it calls for:
//             subset_size                   int64[subset_size], distinct, or
//                                           the first steps of documents
//             weighted_order                float64[num_samples], the weights
//             weighted_order.lists_samples  int64[num_samples], their samples
//             group_order without client_order
//                                           int32[samples of the order], the
//                                           classes
//           Each is a descriptor of a memfd on pages of the usual size, of
//           exactly that many bytes, with F_SEAL_SHRINK, F_SEAL_GROW and
//           F_SEAL_WRITE. The daemon answers once it has checked every value,
//           and keeps none of the descriptors. Another number of them, another
//           file and a wrong value are Refused, which ends the feed.
//
// The daemon accepts no other ancillary data. A message that is malformed, out
// of order, or of the wrong size ends the connection.

#ifndef DATASETD_PROTO_ATTACH_PROTOCOL_H_
#define DATASETD_PROTO_ATTACH_PROTOCOL_H_

#include <cstdint>

namespace datasetd::attach {

inline constexpr uint32_t kMagic = 0x31544144;  // "DAT1"
// Covers the attach messages, the ring and the RPCs.
inline constexpr uint32_t kProtocolVersion = 3;
inline constexpr uint32_t kTokenBytes = 16;
inline constexpr uint32_t kTextBytes = 240;

enum class MessageType : uint32_t {
  kHello = 1,
  kWelcome = 2,
  kAttachFeed = 3,
  kAttached = 4,
  kImportResult = 5,
  kDetached = 6,
  kGoodbye = 7,
  kRefused = 8,
  kClosing = 9,
  kSetWeights = 10,
  kWeightsAnswer = 11,
};

struct Header {
  uint32_t magic;
  uint32_t version;
  MessageType type;
};

struct Hello {
  Header header;
  // The client's process as the client sees it: another number than the
  // daemon's kernel tells, if the client has a PID namespace of its own.
  int32_t pid;
};

struct Welcome {
  Header header;
  uint8_t token[kTokenBytes];
};

struct AttachFeed {
  Header header;
  uint8_t token[kTokenBytes];
  uint32_t reserved;
  uint64_t feed_id;
};

// Order of the descriptors sent with Attached.
enum AttachedDescriptor : uint32_t {
  kDaemonPageFd = 0,
  kClientPageFd = 1,
  kEventFd = 2,
  kSlabFd = 3,  // absent when the slab is a CUDA IPC handle
  kMaxDescriptors = 4,
};

struct Attached {
  Header header;
  uint32_t num_descriptors;
};

struct ImportResult {
  Header header;
  uint32_t is_ok;
  char reason[kTextBytes];  // zero-terminated
};

// The client wants no more batches but still uses the slab. Detached follows.
struct Closing {
  Header header;
};

struct Detached {
  Header header;
};

struct SetWeights {
  Header header;
};

struct WeightsAnswer {
  Header header;
  uint32_t status_code;     // absl::StatusCode; 0: the feed has the weights
  char reason[kTextBytes];  // zero-terminated
};

enum class GoodbyeCode : uint32_t {
  kDraining = 1,      // the daemon stops
  kUnloaded = 2,      // the dataset was unloaded by force
  kEvicted = 3,       // this feed broke the protocol or a limit
  kFailed = 4,        // the device failed
  kFeedFailed = 5,    // its work was refused, or samples are lost; others go on
  kSessionEnded = 6,  // of a session: its requests broke a rule or a limit
};

struct Goodbye {
  Header header;
  GoodbyeCode code;
  char reason[kTextBytes];  // zero-terminated
};

struct Refused {
  Header header;
  uint32_t status_code;     // absl::StatusCode
  char reason[kTextBytes];  // zero-terminated
};

static_assert(sizeof(Header) == 12);
static_assert(sizeof(Hello) == 16);
static_assert(sizeof(Welcome) == 28);
static_assert(sizeof(AttachFeed) == 40);
static_assert(sizeof(Attached) == 16);
static_assert(sizeof(ImportResult) == 256);
static_assert(sizeof(WeightsAnswer) == 256);
static_assert(sizeof(Goodbye) == 256);
static_assert(sizeof(Refused) == 256);

}  // namespace datasetd::attach

#endif  // DATASETD_PROTO_ATTACH_PROTOCOL_H_
