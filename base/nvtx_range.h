// Named NVTX range of the calling thread, in the domain "datasetd", for
// profilers such as Nsight Systems. Costs one comparison if no tool is
// attached, and nothing in a build without the toolkit.

#ifndef DATASETD_BASE_NVTX_RANGE_H_
#define DATASETD_BASE_NVTX_RANGE_H_

namespace datasetd {

// The range lasts from construction to destruction, on one thread. Ranges nest.
class NvtxRange {
 public:
  // `name` is a string literal: "load", "produce", "wait", "release".
  explicit NvtxRange(const char* name);
  ~NvtxRange();

  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_NVTX_RANGE_H_
