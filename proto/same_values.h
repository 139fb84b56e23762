// Checks that an enum of ours has the numbers of the wire, so that a cast
// converts it.

#ifndef DATASETD_PROTO_SAME_VALUES_H_
#define DATASETD_PROTO_SAME_VALUES_H_

// For an enumerator of ours and one of datasetd.v1.
#define DATASETD_SAME_VALUE(ours, wire)                               \
  static_assert(static_cast<int>(ours) == static_cast<int>(v1::wire), \
                #ours " differs from " #wire)

#endif  // DATASETD_PROTO_SAME_VALUES_H_
