// A build without the toolkit has no ranges.

#include "base/nvtx_range.h"

namespace datasetd {

NvtxRange::NvtxRange(const char*) {}
NvtxRange::~NvtxRange() {}

}  // namespace datasetd
