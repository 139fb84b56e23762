#include "client/ctl/exit_code.h"

#include "client/connection/error_detail.h"

namespace datasetd::ctl {

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  switch (client::DetailOf(status)) {
    case client::ErrorDetail::kDaemonGone:
    case client::ErrorDetail::kDaemonDraining:
      return kExitNoDaemon;
    default:
      return kExitRefused;
  }
}

}  // namespace datasetd::ctl
