// Doctor check of the disk of the daemon's cache.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CACHE_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CACHE_H_

#include <string>

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// Directory set by CacheDirectory=datasetd of the systemd unit.
inline constexpr char kDefaultCacheDirectory[] = "/var/cache/datasetd";

// `directory` is cache.directory of the configuration. Empty: the default,
// which need not exist.
void CheckCache(const std::string& directory, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CACHE_H_
