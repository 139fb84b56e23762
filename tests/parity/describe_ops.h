// Describes every op of transform.proto as JSON.

#ifndef DATASETD_TESTS_PARITY_DESCRIBE_OPS_H_
#define DATASETD_TESTS_PARITY_DESCRIBE_OPS_H_

#include "nlohmann/json.hpp"

namespace datasetd {

// {"random_crop": {
//    "name": "RandomCrop", "family": "geometry", "is_random": true,
//    "defaults": {name: value, ...},  // as JSON of the message
//    "parameters": {"padding.left": {
//        "type": "uint32", "is_repeated": false,
//        "min": 0, "max": 1, "above": 0,  // those that there are
//        "choices": [...]}}}}             // of an enum, or values
// where a parameter of several numbers is in its parts, in their order.
nlohmann::ordered_json DescribeOps();

}  // namespace datasetd

#endif  // DATASETD_TESTS_PARITY_DESCRIBE_OPS_H_
