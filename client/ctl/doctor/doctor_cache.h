// The part of the doctor that looks at the disk of the daemon's cache.

#ifndef DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CACHE_H_
#define DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CACHE_H_

#include <string>

#include "client/ctl/doctor/doctor_finding.h"

namespace datasetd::ctl {

// What the unit's CacheDirectory=datasetd is.
inline constexpr char kDefaultCacheDirectory[] = "/var/cache/datasetd";

// `directory` is the configuration's cache.directory; "": the default, which
// need not be there.
void CheckCache(const std::string& directory, Findings* findings);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_DOCTOR_DOCTOR_CACHE_H_
