#include "tests/reference/colour_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>

namespace datasetd::reference {
namespace {

using Plane = std::vector<std::vector<double>>;

double Bound(const ColourImage& image) { return image.is_uint8 ? 255 : 1; }

int Height(const ColourImage& image) {
  return static_cast<int>(image.planes[0].size());
}

int Width(const ColourImage& image) {
  return static_cast<int>(image.planes[0][0].size());
}

double Clamp(const ColourImage& image, double value) {
  return std::min(std::max(value, 0.0), Bound(image));
}

// Every value by itself.
ColourImage Map(ColourImage image,
                const std::function<double(double)>& function) {
  for (Plane& plane : image.planes) {
    for (std::vector<double>& row : plane) {
      for (double& value : row) value = function(value);
    }
  }
  return image;
}

// Every value of a plane, by its place.
Plane MapPlaces(const Plane& plane,
                const std::function<double(int, int)>& function) {
  Plane result = plane;
  for (size_t y = 0; y < plane.size(); ++y) {
    for (size_t x = 0; x < plane[y].size(); ++x) {
      result[y][x] = function(static_cast<int>(y), static_cast<int>(x));
    }
  }
  return result;
}

Plane Gray(const ColourImage& image) {
  if (image.planes.size() == 1) return image.planes[0];
  return MapPlaces(image.planes[0], [&](int y, int x) -> double {
    const double r = image.planes[0][y][x];
    const double g = image.planes[1][y][x];
    const double b = image.planes[2][y][x];
    if (!image.is_uint8) return 0.2989 * r + 0.587 * g + 0.114 * b;
    float sum = static_cast<float>(r) * 0.2989f;
    sum += static_cast<float>(g) * 0.587f;
    sum += static_cast<float>(b) * 0.114f;
    return std::floor(sum);
  });
}

double Mean(const Plane& plane) {
  long double sum = 0;
  for (const std::vector<double>& row : plane) {
    for (double value : row) sum += value;
  }
  return static_cast<double>(sum / plane.size() / plane[0].size());
}

ColourImage BlendWith(const ColourImage& image, double ratio,
                      const std::vector<Plane>& other) {
  ColourImage result = image;
  for (size_t c = 0; c < image.planes.size(); ++c) {
    result.planes[c] = MapPlaces(image.planes[c], [&](int y, int x) {
      const double blended =
          ratio * image.planes[c][y][x] + (1 - ratio) * other[c][y][x];
      return Clamp(image, blended);
    });
  }
  return result;
}

int Mirror(int at, int size) {
  if (at < 0) return -at;
  return at >= size ? 2 * size - 2 - at : at;
}

// A window of odd size, normalised to a sum of 1.
std::vector<double> GaussianWindow(int size, double sigma) {
  std::vector<double> window(size);
  double sum = 0;
  for (int i = 0; i < size; ++i) {
    const double distance = (i - size / 2) / sigma;
    window[i] = std::exp(-distance * distance / 2);
    sum += window[i];
  }
  for (double& weight : window) weight /= sum;
  return window;
}

Plane EqualizedPlane(const Plane& plane) {
  std::map<int, int> histogram;
  int num_pixels = 0;
  for (const std::vector<double>& row : plane) {
    for (double value : row) {
      ++histogram[static_cast<int>(value)];
      ++num_pixels;
    }
  }
  const int step = (num_pixels - histogram.rbegin()->second) / 255;
  if (step == 0) return plane;
  std::map<int, int> table;
  int below = 0;
  for (const auto& [value, count] : histogram) {
    table[value] = std::min((below + step / 2) / step, 255);
    below += count;
  }
  return MapPlaces(plane, [&](int y, int x) -> double {
    return table.at(static_cast<int>(plane[y][x]));
  });
}

}  // namespace

ColourImage AdjustBrightness(const ColourImage& image, double factor) {
  return Map(image, [&](double x) { return Clamp(image, factor * x); });
}

ColourImage AdjustContrast(const ColourImage& image, double factor) {
  const double mean = Mean(Gray(image));
  return Map(image, [&](double x) {
    return Clamp(image, factor * x + (1 - factor) * mean);
  });
}

ColourImage AdjustSaturation(const ColourImage& image, double factor) {
  if (image.planes.size() == 1) return image;
  return BlendWith(image, factor, std::vector<Plane>(3, Gray(image)));
}

ColourImage AdjustHue(const ColourImage& image, double factor) {
  if (image.planes.size() == 1) return image;
  ColourImage result = image;
  for (int y = 0; y < Height(image); ++y) {
    for (int x = 0; x < Width(image); ++x) {
      const double bound = Bound(image);
      const double r = image.planes[0][y][x] / bound;
      const double g = image.planes[1][y][x] / bound;
      const double b = image.planes[2][y][x] / bound;
      const double value = std::max({r, g, b});
      const double chroma = value - std::min({r, g, b});
      // In sixths of a turn.
      double hue = 0;
      if (chroma > 0) {
        if (value == r) {
          hue = (g - b) / chroma;
        } else if (value == g) {
          hue = 2 + (b - r) / chroma;
        } else {
          hue = 4 + (r - g) / chroma;
        }
      }
      hue = std::fmod(hue + 6 * factor + 12, 6.0);
      const int sector = static_cast<int>(hue);
      const double part = hue - sector;
      // The sector's colours, one after the other round the hexagon.
      const double none = value - chroma;
      const double falling = value - chroma * part;
      const double rising = value - chroma * (1 - part);
      const double sectors[6][3] = {
          {value, rising, none}, {falling, value, none},
          {none, value, rising}, {none, falling, value},
          {rising, none, value}, {value, none, falling}};
      for (int c = 0; c < 3; ++c) {
        result.planes[c][y][x] = sectors[sector][c] * bound;
      }
    }
  }
  return result;
}

ColourImage AdjustSharpness(const ColourImage& image, double factor) {
  const int height = Height(image);
  const int width = Width(image);
  if (height <= 2 || width <= 2) return image;
  std::vector<Plane> blurred = image.planes;
  for (Plane& plane : blurred) {
    const Plane& from = image.planes[&plane - blurred.data()];
    for (int y = 1; y + 1 < height; ++y) {
      for (int x = 1; x + 1 < width; ++x) {
        double sum = 4 * from[y][x];
        for (int i = 0; i < 9; ++i) sum += from[y + i / 3 - 1][x + i % 3 - 1];
        plane[y][x] = image.is_uint8 ? std::nearbyint(sum / 13) : sum / 13;
      }
    }
  }
  return BlendWith(image, factor, blurred);
}

ColourImage Grayscale(const ColourImage& image, int num_output_channels) {
  ColourImage result = image;
  result.planes.assign(num_output_channels, Gray(image));
  return result;
}

ColourImage Invert(const ColourImage& image) {
  return Map(image, [&](double x) { return Bound(image) - x; });
}

ColourImage Posterize(const ColourImage& image, int bits) {
  return Map(image, [&](double x) {
    if (image.is_uint8) {
      const double step = std::exp2(8 - bits);
      return std::floor(x / step) * step;
    }
    const double levels = std::exp2(bits);
    return std::min(std::floor(x * levels), levels - 1) / levels;
  });
}

ColourImage Solarize(const ColourImage& image, double threshold) {
  return Map(image,
             [&](double x) { return x < threshold ? x : Bound(image) - x; });
}

ColourImage Autocontrast(const ColourImage& image) {
  ColourImage result = image;
  for (Plane& plane : result.planes) {
    double low = plane[0][0];
    double high = plane[0][0];
    for (const std::vector<double>& row : plane) {
      low = std::min(low, *std::min_element(row.begin(), row.end()));
      high = std::max(high, *std::max_element(row.begin(), row.end()));
    }
    if (low == high) continue;
    for (std::vector<double>& row : plane) {
      for (double& x : row) {
        if (image.is_uint8) {
          const float inverse = 1.0f / static_cast<float>(high - low);
          const float scale = inverse * 255.0f;
          x = Clamp(image, std::trunc(static_cast<float>(x - low) * scale));
        } else {
          x = (x - low) / (high - low);
        }
      }
    }
  }
  return result;
}

ColourImage Equalize(const ColourImage& image) {
  ColourImage result = image;
  if (!image.is_uint8) {
    // Through 8 bits, with torchvision's factor of 256 less a thousandth.
    result = Map(image, [](double x) {
      return std::floor(static_cast<double>(static_cast<float>(x) * 255.999f));
    });
  }
  for (Plane& plane : result.planes) plane = EqualizedPlane(plane);
  return image.is_uint8 ? result
                        : Map(result, [](double x) { return x / 255; });
}

ColourImage GaussianBlur(const ColourImage& image, int kernel_size_x,
                         int kernel_size_y, double sigma) {
  const int height = Height(image);
  const int width = Width(image);
  const std::vector<double> window_x = GaussianWindow(kernel_size_x, sigma);
  const std::vector<double> window_y = GaussianWindow(kernel_size_y, sigma);
  ColourImage result = image;
  for (size_t c = 0; c < image.planes.size(); ++c) {
    result.planes[c] = MapPlaces(image.planes[c], [&](int y, int x) {
      double sum = 0;
      for (int i = 0; i < kernel_size_y; ++i) {
        const int row = Mirror(y + i - kernel_size_y / 2, height);
        for (int j = 0; j < kernel_size_x; ++j) {
          const int column = Mirror(x + j - kernel_size_x / 2, width);
          sum += window_y[i] * window_x[j] * image.planes[c][row][column];
        }
      }
      return sum;
    });
  }
  return result;
}

ColourImage Erase(const ColourImage& image, int top, int left, int height,
                  int width, const std::vector<double>& values) {
  ColourImage result = image;
  for (size_t c = 0; c < image.planes.size(); ++c) {
    for (int y = top; y < top + height; ++y) {
      for (int x = left; x < left + width; ++x) {
        if (y < 0 || y >= Height(image) || x < 0 || x >= Width(image)) continue;
        result.planes[c][y][x] = values[c];
      }
    }
  }
  return result;
}

}  // namespace datasetd::reference
