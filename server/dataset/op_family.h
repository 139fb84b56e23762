// The families of ops, and types shared by op specs.

#ifndef DATASETD_SERVER_DATASET_OP_FAMILY_H_
#define DATASETD_SERVER_DATASET_OP_FAMILY_H_

namespace datasetd {

enum class OpFamily {
  kGeometry,  // source positions of pixels
  kColour,    // pixel values, from their colour or neighbours
  kErase,     // overwrites regions
  kNumber,    // dtype and scale
  kGroup,     // contains a list of ops
  kBatch,     // combines samples of a batch, and their labels
};

// Inclusive range of a drawn value.
struct Interval {
  double min = 0.0;
  double max = 0.0;
};

struct PointXy {
  double x = 0.0;
  double y = 0.0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_OP_FAMILY_H_
