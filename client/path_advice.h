// Says why a path is not found, and what to give instead.

#ifndef DATASETD_CLIENT_PATH_ADVICE_H_
#define DATASETD_CLIENT_PATH_ADVICE_H_

#include <string>

#include "absl/status/status.h"

namespace datasetd::client {

// True for https://..., s3://... and the like, unless there is such a file.
bool IsUrl(const std::string& path);

// Returns why there is nothing at `path`, as this process sees it, and what to
// give instead; empty if something is there. A relative path is one of the
// working directory. Reads directories.
std::string PathAdvice(const std::string& path);

// Returns the daemon's error for a load; if it is that of a file which this
// process does not see, either, then with PathAdvice of that file in the place
// of advice for files that only the daemon does not see.
absl::Status ExplainMissingFile(const absl::Status& error);

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_PATH_ADVICE_H_
