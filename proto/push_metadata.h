// Metadata of the PushDataset call.

#ifndef DATASETD_PROTO_PUSH_METADATA_H_
#define DATASETD_PROTO_PUSH_METADATA_H_

namespace datasetd {

// The daemon sends initial metadata with this key (and any value) after it has
// checked the header and reserved the memory, before it reads the first block.
// A refused push ends without it.
inline constexpr char kPushBegunKey[] = "datasetd-push-begun";

}  // namespace datasetd

#endif  // DATASETD_PROTO_PUSH_METADATA_H_
