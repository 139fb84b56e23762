// How the ops that warp an image sample it.

#ifndef DATASETD_CUDA_KERNELS_OPS_WARP_H_
#define DATASETD_CUDA_KERNELS_OPS_WARP_H_

#include "cuda/kernels/program/params.h"

namespace datasetd {

// The params of a step that may warp its image begin with this, which the
// executor reads whatever op was drawn. Outside pixels are zero; a fill is
// blended in by a mask of ones that is sampled like the image.
struct WarpParams {
  bool is_bilinear;  // else nearest
  bool has_fill;
  // x, y of the output's centre; integers are pixel centres.
  float out_middle[2];
  float fill[kMaxChannels];
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_WARP_H_
