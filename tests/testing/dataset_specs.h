// Requests of loads, for tests.

#ifndef DATASETD_TESTS_TESTING_DATASET_SPECS_H_
#define DATASETD_TESTS_TESTING_DATASET_SPECS_H_

#include <google/protobuf/text_format.h>

#include <map>
#include <string>
#include <vector>

#include "base/require.h"
#include "datasetd/v1/dataset.pb.h"

namespace datasetd::testing {

using SpecOptions = std::map<std::string, std::string>;

inline void SetOptions(v1::DatasetSpec& spec, const SpecOptions& options) {
  *spec.mutable_options() = {options.begin(), options.end()};
}

inline void SetOption(v1::DatasetSpec& spec, const std::string& name,
                      const std::string& value) {
  (*spec.mutable_options())[name] = value;
}

// Returns a request with the fields that readers use.
inline v1::DatasetSpec SpecOf(const std::string& format,
                              const std::string& path,
                              const std::string& split = "",
                              const SpecOptions& options = {}) {
  v1::DatasetSpec spec;
  spec.set_format(format);
  spec.set_path(path);
  spec.set_split(split);
  SetOptions(spec, options);
  return spec;
}

// Returns the request of a dataset of this name, from /data/NAME.
inline v1::DatasetSpec NamedSpec(const std::string& name) {
  v1::DatasetSpec spec = SpecOf("fake", "/data/" + name);
  spec.set_name(name);
  return spec;
}

// Merges `text`, in protobuf's text format, into a request:
//   With(NamedSpec("a"), "pin: true")
template <typename Message = v1::DatasetSpec>
Message With(Message request, const std::string& text) {
  Require(google::protobuf::TextFormat::MergeFromString(text, &request),
          "a request of a test can be parsed");
  return request;
}

inline void SetPretransforms(v1::DatasetSpec& spec, const std::string& field,
                             const std::vector<v1::Transform>& ops) {
  *(*spec.mutable_pretransforms())[field].mutable_transforms() = {ops.begin(),
                                                                  ops.end()};
}

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_DATASET_SPECS_H_
