// The class names that a request gives, for readers that derive classes from
// the source.

#ifndef DATASETD_SERVER_READERS_WANTED_CLASSES_H_
#define DATASETD_SERVER_READERS_WANTED_CLASSES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/readers/reader.h"

namespace datasetd {

class WantedClasses {
 public:
  // `spec` outlives it.
  explicit WantedClasses(const v1::DatasetSpec& spec) : spec_(spec) {
    for (const std::string& name : spec.class_names()) {
      indices_.emplace(name, static_cast<int64_t>(indices_.size()));
    }
  }

  // False: the classes are those of the source.
  bool is_given() const { return spec_.class_names_size() > 0; }
  std::vector<std::string> names() const {
    return {spec_.class_names().begin(), spec_.class_names().end()};
  }

  // Returns the index of a class of the source, and nothing if its samples are
  // left out. REQUIRES: is_given().
  //   INVALID_ARGUMENT  the request does not list it; begins with `where`
  absl::StatusOr<std::optional<int64_t>> Find(absl::string_view name,
                                              absl::string_view where) const;

 private:
  const v1::DatasetSpec& spec_;
  std::map<absl::string_view, int64_t> indices_;
};

// Adds the notes of samples of classes that are not listed, `names`, and of
// classes without a sample. Unless they are given, that is a warning.
void AddClassNotes(int64_t num_left_out, const std::vector<std::string>& names,
                   const std::vector<std::string>& class_names,
                   const std::vector<int64_t>& labels, bool are_given,
                   std::vector<LoadNote>& notes);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_WANTED_CLASSES_H_
