// Resizing, rotating and moving images in double precision, one image at a
// time, written from torchvision's and ATen's formulas for tests. Slow and
// plain. Shares no code with cuda/kernels.

#ifndef DATASETD_TESTS_REFERENCE_GEOMETRY_REFERENCE_H_
#define DATASETD_TESTS_REFERENCE_GEOMETRY_REFERENCE_H_

#include <optional>
#include <vector>

namespace datasetd::reference {

struct PlanarImage {
  PlanarImage(int channels, int height, int width);

  double& at(int c, int y, int x);
  double at(int c, int y, int x) const;

  int channels, height, width;
  std::vector<double> values;  // [channels, height, width]
};

PlanarImage Crop(const PlanarImage& image, int top, int left, int height,
                 int width);
PlanarImage FlipLeftRight(const PlanarImage& image);
PlanarImage FlipUpDown(const PlanarImage& image);
// `fill` has one value per channel.
PlanarImage PadConstant(const PlanarImage& image, int left, int top, int right,
                        int bottom, const std::vector<double>& fill);

enum class Filter { kBilinear, kBicubic };
PlanarImage Resize(const PlanarImage& image, int height, int width,
                   Filter filter, bool antialias);

// Nearest, in rational arithmetic. An axis's source index is
// floor((i + offset) * in / out), offset 0 or (exact) 1/2. `slack` moves the
// source point, to see what is next to an edge.
int NearestSource(int i, int in_size, int out_size, bool is_exact,
                  double slack);

struct AffineMap {
  double angle = 0.0;  // degrees, clockwise
  double translate_x = 0.0, translate_y = 0.0;
  double scale = 1.0;
  double shear_x = 0.0, shear_y = 0.0;    // degrees
  double center_x = 0.0, center_y = 0.0;  // pixels from the upper left corner
};
// The point of the input that output pixel (y, x) shows; integers are pixel
// centres.
struct Point {
  double y, x;
};
Point SourcePoint(const AffineMap& map, int y, int x);
PlanarImage AffineBilinear(const PlanarImage& image, const AffineMap& map,
                           const std::optional<std::vector<double>>& fill);

}  // namespace datasetd::reference

#endif  // DATASETD_TESTS_REFERENCE_GEOMETRY_REFERENCE_H_
