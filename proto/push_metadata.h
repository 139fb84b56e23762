// Metadata of the PushDataset call.

#ifndef DATASETD_PROTO_PUSH_METADATA_H_
#define DATASETD_PROTO_PUSH_METADATA_H_

namespace datasetd {

// The daemon sends initial metadata with this key after it has checked the
// header and reserved the memory, before it reads the first block. A refused
// push ends without it.
inline constexpr char kPushBegunKey[] = "datasetd-push-begun";
// Its values: the daemon waits for blocks, or for digests in their place.
inline constexpr char kPushByBlocks[] = "blocks";
inline constexpr char kPushByDigests[] = "digests";

}  // namespace datasetd

#endif  // DATASETD_PROTO_PUSH_METADATA_H_
