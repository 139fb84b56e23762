// Early return on an error status.

#ifndef DATASETD_BASE_STATUS_MACROS_H_
#define DATASETD_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define DATASETD_RETURN_IF_ERROR(expression)                                  \
  do {                                                                        \
    if (absl::Status datasetd_status = (expression); !datasetd_status.ok()) { \
      return datasetd_status;                                                 \
    }                                                                         \
  } while (false)

#define DATASETD_CONCAT_INNER(a, b) a##b
#define DATASETD_CONCAT(a, b) DATASETD_CONCAT_INNER(a, b)

// DATASETD_ASSIGN_OR_RETURN(auto x, F()) declares x or returns F's error.
#define DATASETD_ASSIGN_OR_RETURN(lhs, expression) \
  DATASETD_ASSIGN_OR_RETURN_INNER(                 \
      DATASETD_CONCAT(datasetd_statusor_, __LINE__), lhs, expression)

#define DATASETD_ASSIGN_OR_RETURN_INNER(statusor, lhs, expression) \
  auto statusor = (expression);                                    \
  if (!statusor.ok()) return std::move(statusor).status();         \
  lhs = *std::move(statusor)

#endif  // DATASETD_BASE_STATUS_MACROS_H_
