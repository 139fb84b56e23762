// Ops for tests, in protobuf's text format:
//
//   Op("random_crop { height: 4 width: $0 }", width)

#ifndef DATASETD_TESTS_TESTING_OPS_H_
#define DATASETD_TESTS_TESTING_OPS_H_

#include <google/protobuf/text_format.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "base/require.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd::testing {

// A number that the text format reads back as it is; an enum as its number.
template <typename T>
std::string OpArgument(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return absl::StrFormat("%.17g", value);
  } else if constexpr (std::is_enum_v<T>) {
    return absl::StrCat(static_cast<int>(value));
  } else {
    return absl::Substitute("$0", value);
  }
}

// `text` with its $0, $1, ... replaced by the arguments, and defaults filled
// in. Nothing is checked: a parameter may be out of range.
template <typename... Args>
v1::Transform Op(const std::string& text, const Args&... arguments) {
  v1::Transform transform;
  Require(google::protobuf::TextFormat::ParseFromString(
              absl::Substitute(text, OpArgument(arguments)...), &transform),
          "an op of a test can be parsed");
  FillDefaults(&transform);
  return transform;
}

// The same op with a draw_id.
inline v1::Transform WithDrawId(v1::Transform transform, uint32_t draw_id) {
  transform.set_draw_id(draw_id);
  return transform;
}

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_OPS_H_
