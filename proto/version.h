// Version of the release: daemon, client library and datasetctl.

#ifndef DATASETD_PROTO_VERSION_H_
#define DATASETD_PROTO_VERSION_H_

namespace datasetd {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace datasetd

#endif  // DATASETD_PROTO_VERSION_H_
