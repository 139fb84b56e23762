// Philox4x32-10 as the paper states it, for tests.
//
// Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC 2011, section 3.3. Shares no code with cuda/kernels.

#ifndef DATASETD_TESTS_REFERENCE_PHILOX_REFERENCE_H_
#define DATASETD_TESTS_REFERENCE_PHILOX_REFERENCE_H_

#include <array>
#include <cstdint>

namespace datasetd::reference {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter,
                               std::array<uint32_t, 2> key);

}  // namespace datasetd::reference

#endif  // DATASETD_TESTS_REFERENCE_PHILOX_REFERENCE_H_
