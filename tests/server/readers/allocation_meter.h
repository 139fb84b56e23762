// Counts what operator new has given out in this process.

#ifndef DATASETD_TESTS_SERVER_READERS_ALLOCATION_METER_H_
#define DATASETD_TESTS_SERVER_READERS_ALLOCATION_METER_H_

#include <cstdint>

namespace datasetd::testing {

// The most bytes held at once since construction, above those held then. One
// at a time.
class AllocationMeter {
 public:
  AllocationMeter();
  int64_t peak_bytes() const;

 private:
  const int64_t bytes_at_start_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_SERVER_READERS_ALLOCATION_METER_H_
