#include "tests/cuda/kernels/ops/op_image.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <utility>

namespace datasetd {
namespace {

struct Content {
  const char* name;
  // The level, 0 to 255, of channel c at (y, x).
  std::function<int(int c, int y, int x, std::mt19937* engine)> level;
};

std::vector<Content> Contents() {
  return {
      {"noise",
       [](int, int, int, std::mt19937* engine) -> int {
         return (*engine)() & 255;
       }},
      {"ramp", [](int c, int y, int x,
                  std::mt19937*) { return (3 * y + 5 * x + 40 * c) % 256; }},
      {"few levels",
       [](int c, int, int, std::mt19937* engine) -> int {
         return 90 + 10 * c + (*engine)() % 7;
       }},
      {"one value", [](int c, int, int, std::mt19937*) { return 77 + 50 * c; }},
      {"extremes",
       [](int, int, int, std::mt19937* engine) -> int {
         return ((*engine)() & 1) * 255;
       }},
  };
}

}  // namespace

std::vector<OpImage> TestImages() {
  std::vector<OpImage> images;
  std::mt19937 engine(20);
  for (const auto& [height, width] :
       {std::pair{1, 1}, {2, 3}, {31, 33}, {123, 66}}) {
    for (const int num_channels : {1, 3}) {
      for (const float bound : {255.0f, 1.0f}) {
        for (const Content& content : Contents()) {
          OpImage image;
          image.name = std::string(content.name) + " " +
                       std::to_string(num_channels) + "x" +
                       std::to_string(height) + "x" + std::to_string(width) +
                       (bound == 255.0f ? " uint8" : " float");
          image.num_channels = num_channels;
          image.height = height;
          image.width = width;
          image.bound = bound;
          for (int c = 0; c < num_channels; ++c) {
            for (int y = 0; y < height; ++y) {
              for (int x = 0; x < width; ++x) {
                const int level = content.level(c, y, x, &engine);
                image.values.push_back(
                    bound == 255.0f ? static_cast<float>(level)
                                    : static_cast<float>(level) / 255.0f);
              }
            }
          }
          images.push_back(std::move(image));
        }
      }
    }
  }
  return images;
}

reference::ColourImage ToReference(const OpImage& image) {
  reference::ColourImage result;
  result.is_uint8 = image.bound == 255.0f;
  auto value = image.values.begin();
  result.planes.resize(image.num_channels);
  for (auto& plane : result.planes) {
    plane.resize(image.height);
    for (auto& row : plane) {
      row.assign(value, value + image.width);
      value += image.width;
    }
  }
  return result;
}

double Difference(const OpImage& image, const reference::ColourImage& other) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const reference::ColourImage mine = ToReference(image);
  if (mine.is_uint8 != other.is_uint8 ||
      mine.planes.size() != other.planes.size() ||
      mine.planes[0].size() != other.planes[0].size() ||
      mine.planes[0][0].size() != other.planes[0][0].size()) {
    return kInfinity;
  }
  double worst = 0;
  for (int c = 0; c < image.num_channels; ++c) {
    for (int y = 0; y < image.height; ++y) {
      for (int x = 0; x < image.width; ++x) {
        const double difference =
            std::fabs(mine.planes[c][y][x] - other.planes[c][y][x]);
        if (std::isnan(difference)) return kInfinity;
        worst = std::max(worst, difference);
      }
    }
  }
  return worst / image.bound;
}

}  // namespace datasetd
