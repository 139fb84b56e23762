// The colour, blur, sharpness and erase ops in double precision, one image at a
// time, written from torchvision's formulas for tests. Slow and plain.
//
// Where torchvision drops a fraction of a uint8 image inside an op (gray, the
// blurred image, autocontrast), so does this; results are not rounded
// otherwise. The gray and autocontrast then compute in float32, because at
// whole numbers the precision decides.

#ifndef DATASETD_TESTS_REFERENCE_COLOUR_REFERENCE_H_
#define DATASETD_TESTS_REFERENCE_COLOUR_REFERENCE_H_

#include <vector>

namespace datasetd::reference {

struct ColourImage {
  bool is_uint8 = false;
  // [channel][row][column]; 0 to 255 if is_uint8, 0 to 1 otherwise.
  std::vector<std::vector<std::vector<double>>> planes;
};

// Factors as torchvision's; images of 1 or 3 channels.
ColourImage AdjustBrightness(const ColourImage& image, double factor);
ColourImage AdjustContrast(const ColourImage& image, double factor);
ColourImage AdjustSaturation(const ColourImage& image, double factor);
ColourImage AdjustHue(const ColourImage& image, double factor);
ColourImage AdjustSharpness(const ColourImage& image, double factor);
ColourImage Grayscale(const ColourImage& image, int num_output_channels);
ColourImage Invert(const ColourImage& image);
ColourImage Posterize(const ColourImage& image, int bits);
ColourImage Solarize(const ColourImage& image, double threshold);
ColourImage Autocontrast(const ColourImage& image);
ColourImage Equalize(const ColourImage& image);
// Sizes are odd, and half of them below the image's.
ColourImage GaussianBlur(const ColourImage& image, int kernel_size_x,
                         int kernel_size_y, double sigma);
// `values` has one value per channel.
ColourImage Erase(const ColourImage& image, int top, int left, int height,
                  int width, const std::vector<double>& values);

}  // namespace datasetd::reference

#endif  // DATASETD_TESTS_REFERENCE_COLOUR_REFERENCE_H_
