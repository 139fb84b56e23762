// What kind of op a spec is, and what several specs are made of.

#ifndef DATASETD_SERVER_DATASET_OP_FAMILY_H_
#define DATASETD_SERVER_DATASET_OP_FAMILY_H_

namespace datasetd {

enum class OpFamily {
  kGeometry,  // where pixels come from
  kColour,    // what values they get, by their colour or neighbours
  kErase,     // parts that are overwritten
  kNumber,    // dtype and scale
  kGroup,     // a list of ops
  kBatch,     // several samples; labels, too
};

// Both ends are drawn.
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
