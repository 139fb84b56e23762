// The daemon's exit codes, beside 0.

#ifndef DATASETD_SERVER_EXIT_CODES_H_
#define DATASETD_SERVER_EXIT_CODES_H_

namespace datasetd {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitBadConfiguration = 2;  // or flags
// The directory of --private is not this user's alone.
inline constexpr int kExitForbidden = 3;

}  // namespace datasetd

#endif  // DATASETD_SERVER_EXIT_CODES_H_
