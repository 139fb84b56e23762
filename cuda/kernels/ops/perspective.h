// RandomPerspective: maps the image's corners to drawn points.
//
// As torchvision on tensors: corners are those of pixels, while the map acts on
// pixel centres. Where the drawn points determine no map, because three of them
// are on a line or the image has one row or column, it is the identity.

#ifndef DATASETD_CUDA_KERNELS_OPS_PERSPECTIVE_H_
#define DATASETD_CUDA_KERNELS_OPS_PERSPECTIVE_H_

#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/warp.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct PerspectiveParams : WarpParams {
  // x, y: how far a corner moves at most, in pixels.
  int32_t reach[2];
};

inline bool DrawsBySize(const PerspectiveParams&) { return true; }

struct PerspectiveDraw {
  // (u, v, w) = matrix * (x, y, 1); (u / w, v / w) is the source.
  float matrix[3][3];
  // x, y of the upper left, upper right, lower right and lower left corners.
  int32_t end[4][2];
};

template <typename Visit>
void VisitDrawn(const PerspectiveDraw& draw, const Step& step, const DrawKey&,
                const Visit& visit) {
  const int32_t right = step.in_width - 1;
  const int32_t bottom = step.in_height - 1;
  visit("startpoints", 0, 0, right, 0, right, bottom, 0, bottom);
  const int32_t(&end)[4][2] = draw.end;
  visit("endpoints", end[0][0], end[0][1], end[1][0], end[1][1], end[2][0],
        end[2][1], end[3][0], end[3][1]);
}

namespace perspective_internal {

// True if three of the points are on a line.
DATASETD_HOST_DEVICE inline bool HasThreeOnALine(const int32_t (&end)[4][2]) {
  for (int i = 0; i < 4; ++i) {
    const int32_t(&a)[2] = end[i];
    const int32_t(&b)[2] = end[(i + 1) % 4];
    const int32_t(&c)[2] = end[(i + 2) % 4];
    if (int64_t{b[0] - a[0]} * (c[1] - a[1]) ==
        int64_t{b[1] - a[1]} * (c[0] - a[0])) {
      return true;
    }
  }
  return false;
}

// Sets `inverse` to the map from the quadrilateral `end` to the unit square, up
// to a factor. REQUIRES: no three points are on a line.
DATASETD_HOST_DEVICE inline void SquareFromQuad(const int32_t (&end)[4][2],
                                                double (&inverse)[3][3]) {
  double edge[2][2];  // from corner 2 to 1 and to 3; by axis
  double sum[2];
  for (int axis = 0; axis < 2; ++axis) {
    const double corner2 = end[2][axis];
    edge[0][axis] = end[1][axis] - corner2;
    edge[1][axis] = end[3][axis] - corner2;
    sum[axis] = end[0][axis] - end[1][axis] + corner2 - end[3][axis];
  }
  // The map from the square, times `scale`: Heckbert, "Fundamentals of Texture
  // Mapping and Image Warping", 1989.
  const double scale = edge[0][0] * edge[1][1] - edge[1][0] * edge[0][1];
  const double g = sum[0] * edge[1][1] - edge[1][0] * sum[1];
  const double h = edge[0][0] * sum[1] - sum[0] * edge[0][1];
  double m[3][3];
  for (int axis = 0; axis < 2; ++axis) {
    m[axis][0] = scale * (end[1][axis] - end[0][axis]) + g * end[1][axis];
    m[axis][1] = scale * (end[3][axis] - end[0][axis]) + h * end[3][axis];
    m[axis][2] = scale * end[0][axis];
  }
  m[2][0] = g;
  m[2][1] = h;
  m[2][2] = scale;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      const int r1 = (column + 1) % 3;
      const int r2 = (column + 2) % 3;
      const int c1 = (row + 1) % 3;
      const int c2 = (row + 2) % 3;
      inverse[row][column] = m[r1][c1] * m[r2][c2] - m[r1][c2] * m[r2][c1];
    }
  }
}

}  // namespace perspective_internal

// Draw 1: x and y of the upper left corner, then of the upper right; draw 2: of
// the lower right corner, then of the lower left.
DATASETD_HOST_DEVICE inline PerspectiveDraw DrawPerspective(
    const PerspectiveParams& params, const DrawKey& key, int height,
    int width) {
  PerspectiveDraw draw = {};
  const int32_t size[2] = {width, height};
  for (int corner = 0; corner < 4; ++corner) {
    const Words4 words = DrawWords(key, 1 + corner / 2);
    const bool is_far[2] = {corner == 1 || corner == 2, corner >= 2};
    for (int axis = 0; axis < 2; ++axis) {
      const int32_t reach = params.reach[axis];
      const int32_t drawn =
          static_cast<int32_t>(UniformInt(words.word[2 * (corner % 2) + axis],
                                          static_cast<uint32_t>(reach) + 1));
      draw.end[corner][axis] =
          is_far[axis] ? size[axis] - 1 - reach + drawn : drawn;
    }
  }
  if (height < 2 || width < 2 ||
      perspective_internal::HasThreeOnALine(draw.end)) {
    for (int i = 0; i < 3; ++i) draw.matrix[i][i] = 1.0f;
    for (int i = 0; i < 2; ++i) draw.matrix[i][2] = params.out_middle[i];
    return draw;
  }
  double map[3][3];
  perspective_internal::SquareFromQuad(draw.end, map);
  // From the square to the image, and from corners of pixels to their centres.
  double to[3][3];
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) {
      to[i][k] =
          i < 2 ? map[i][k] * (size[i] - 1) - 0.5 * map[2][k] : map[2][k];
    }
    to[i][2] += 0.5 * (to[i][0] * width + to[i][1] * height);
  }
  // The scale is free: make w 1 at the centre, unless that is at infinity.
  const double scale = to[2][2] != 0.0   ? to[2][2]
                       : to[2][0] != 0.0 ? to[2][0]
                                         : to[2][1];
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) {
      draw.matrix[i][k] = static_cast<float>(Quotient(to[i][k], scale));
    }
  }
  return draw;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_PERSPECTIVE_H_
