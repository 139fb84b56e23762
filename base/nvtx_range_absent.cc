// NvtxRange for builds without the toolkit: does nothing.

#include "base/nvtx_range.h"

namespace datasetd {

NvtxRange::NvtxRange(const char*) {}
NvtxRange::~NvtxRange() {}

}  // namespace datasetd
