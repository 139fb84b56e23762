#ifndef DATASETD_SERVER_VERSION_H_
#define DATASETD_SERVER_VERSION_H_

namespace datasetd {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace datasetd

#endif  // DATASETD_SERVER_VERSION_H_
