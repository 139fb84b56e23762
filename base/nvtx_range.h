// A named range of this thread's time, for Nsight Systems and its like: NVTX,
// in the domain "datasetd". Costs a comparison where no tool listens, and
// nothing in a build without the toolkit.

#ifndef DATASETD_BASE_NVTX_RANGE_H_
#define DATASETD_BASE_NVTX_RANGE_H_

namespace datasetd {

// From construction to destruction, on one thread; ranges nest.
class NvtxRange {
 public:
  // `name` is a literal: "load", "produce", "wait", "release".
  explicit NvtxRange(const char* name);
  ~NvtxRange();

  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_NVTX_RANGE_H_
