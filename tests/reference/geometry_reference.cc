#include "tests/reference/geometry_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace datasetd::reference {
namespace {

constexpr double kPi = 3.14159265358979323846;

double Cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1.0) {
    return (a + 2.0) * x * x * x - (a + 3.0) * x * x + 1.0;
  }
  if (x < 2.0) return a * x * x * x - 5.0 * a * x * x + 8.0 * a * x - 4.0 * a;
  return 0.0;
}

double Triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// One row of the matrix that resizes an axis.
std::vector<double> Weights(int i, int in_size, int out_size, Filter filter,
                            bool antialias) {
  std::vector<double> weights(static_cast<size_t>(in_size), 0.0);
  const double scale = static_cast<double>(in_size) / out_size;
  const double center = (i + 0.5) * scale;
  if (!antialias) {
    const int first = static_cast<int>(std::floor(center - 0.5));
    const int reach = filter == Filter::kBicubic ? 2 : 1;
    for (int k = first - reach + 1; k <= first + reach; ++k) {
      const double x = center - 0.5 - k;
      const int held = std::clamp(k, 0, in_size - 1);
      weights[held] +=
          filter == Filter::kBicubic ? Cubic(x, -0.75) : Triangle(x);
    }
    return weights;
  }
  const double stretch = std::max(scale, 1.0);
  const double support = (filter == Filter::kBicubic ? 2.0 : 1.0) * stretch;
  double sum = 0.0;
  for (int k = 0; k < in_size; ++k) {
    // As ATen cuts the window: pixels by their truncated edges.
    if (k < static_cast<int>(std::max(center - support + 0.5, 0.0))) continue;
    if (k >= static_cast<int>(center + support + 0.5)) continue;
    const double x = (k + 0.5 - center) / stretch;
    weights[k] = filter == Filter::kBicubic ? Cubic(x, -0.5) : Triangle(x);
    sum += weights[k];
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

double Radians(double degrees) { return degrees * kPi / 180.0; }

}  // namespace

PlanarImage::PlanarImage(int channels, int height, int width)
    : channels(channels),
      height(height),
      width(width),
      values(static_cast<size_t>(channels) * height * width) {}

double& PlanarImage::at(int c, int y, int x) {
  return values.at((static_cast<size_t>(c) * height + y) * width + x);
}
double PlanarImage::at(int c, int y, int x) const {
  return values.at((static_cast<size_t>(c) * height + y) * width + x);
}

PlanarImage Crop(const PlanarImage& image, int top, int left, int height,
                 int width) {
  PlanarImage out(image.channels, height, width);
  for (int c = 0; c < image.channels; ++c) {
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        out.at(c, y, x) = image.at(c, top + y, left + x);
      }
    }
  }
  return out;
}

PlanarImage FlipLeftRight(const PlanarImage& image) {
  PlanarImage out = image;
  for (int c = 0; c < image.channels; ++c) {
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        out.at(c, y, x) = image.at(c, y, image.width - 1 - x);
      }
    }
  }
  return out;
}

PlanarImage FlipUpDown(const PlanarImage& image) {
  PlanarImage out = image;
  for (int c = 0; c < image.channels; ++c) {
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        out.at(c, y, x) = image.at(c, image.height - 1 - y, x);
      }
    }
  }
  return out;
}

PlanarImage PadConstant(const PlanarImage& image, int left, int top, int right,
                        int bottom, const std::vector<double>& fill) {
  PlanarImage out(image.channels, image.height + top + bottom,
                  image.width + left + right);
  for (int c = 0; c < image.channels; ++c) {
    for (int y = 0; y < out.height; ++y) {
      for (int x = 0; x < out.width; ++x) {
        const int from_y = y - top;
        const int from_x = x - left;
        const bool is_inside = from_y >= 0 && from_y < image.height &&
                               from_x >= 0 && from_x < image.width;
        out.at(c, y, x) = is_inside ? image.at(c, from_y, from_x) : fill.at(c);
      }
    }
  }
  return out;
}

PlanarImage Resize(const PlanarImage& image, int height, int width,
                   Filter filter, bool antialias) {
  PlanarImage tall(image.channels, height, image.width);
  for (int y = 0; y < height; ++y) {
    const std::vector<double> weights =
        Weights(y, image.height, height, filter, antialias);
    for (int c = 0; c < image.channels; ++c) {
      for (int x = 0; x < image.width; ++x) {
        for (int k = 0; k < image.height; ++k) {
          if (weights[k] == 0.0) continue;
          tall.at(c, y, x) += weights[k] * image.at(c, k, x);
        }
      }
    }
  }
  PlanarImage out(image.channels, height, width);
  for (int x = 0; x < width; ++x) {
    const std::vector<double> weights =
        Weights(x, image.width, width, filter, antialias);
    for (int k = 0; k < image.width; ++k) {
      if (weights[k] == 0.0) continue;
      for (int c = 0; c < image.channels; ++c) {
        for (int y = 0; y < height; ++y) {
          out.at(c, y, x) += weights[k] * tall.at(c, y, k);
        }
      }
    }
  }
  return out;
}

int NearestSource(int i, int in_size, int out_size, bool is_exact,
                  double slack) {
  const double at = (i + (is_exact ? 0.5 : 0.0)) * in_size / out_size + slack;
  return std::clamp(static_cast<int>(std::floor(at)), 0, in_size - 1);
}

Point SourcePoint(const AffineMap& map, int y, int x) {
  // Forward: T * C * rotate-scale-shear * C^-1, with
  // RSS = [[a, b], [c, d]] * scale; this inverts it.
  const double rotation = Radians(map.angle);
  const double shear_x = Radians(map.shear_x);
  const double shear_y = Radians(map.shear_y);
  const double a = std::cos(rotation - shear_y) / std::cos(shear_y);
  const double b =
      -std::cos(rotation - shear_y) * std::tan(shear_x) / std::cos(shear_y) -
      std::sin(rotation);
  const double c = std::sin(rotation - shear_y) / std::cos(shear_y);
  const double d =
      -std::sin(rotation - shear_y) * std::tan(shear_x) / std::cos(shear_y) +
      std::cos(rotation);
  const double determinant = a * d - b * c;
  const double out_x = x + 0.5 - map.center_x - map.translate_x;
  const double out_y = y + 0.5 - map.center_y - map.translate_y;
  const double in_x = (d * out_x - b * out_y) / determinant / map.scale;
  const double in_y = (-c * out_x + a * out_y) / determinant / map.scale;
  return {in_y + map.center_y - 0.5, in_x + map.center_x - 0.5};
}

PlanarImage AffineBilinear(const PlanarImage& image, const AffineMap& map,
                           const std::optional<std::vector<double>>& fill) {
  PlanarImage out(image.channels, image.height, image.width);
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const Point point = SourcePoint(map, y, x);
      const int top = static_cast<int>(std::floor(point.y));
      const int left = static_cast<int>(std::floor(point.x));
      for (int c = 0; c < image.channels; ++c) {
        double sum = 0.0;
        double mask = 0.0;
        for (int i = top; i <= top + 1; ++i) {
          for (int k = left; k <= left + 1; ++k) {
            if (i < 0 || i >= image.height || k < 0 || k >= image.width) {
              continue;
            }
            const double weight = Triangle(point.y - i) * Triangle(point.x - k);
            sum += weight * image.at(c, i, k);
            mask += weight;
          }
        }
        out.at(c, y, x) =
            fill.has_value() ? mask * sum + (1.0 - mask) * fill->at(c) : sum;
      }
    }
  }
  return out;
}

}  // namespace datasetd::reference
