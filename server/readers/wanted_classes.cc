#include "server/readers/wanted_classes.h"

#include "absl/strings/str_cat.h"

namespace datasetd {

absl::StatusOr<std::optional<int64_t>> WantedClasses::Find(
    absl::string_view name, absl::string_view where) const {
  const auto found = indices_.find(name);
  if (found != indices_.end()) return found->second;
  if (spec_.ignore_other_classes()) return std::nullopt;
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": class '", name, "' is not one of the ", indices_.size(),
      " class names that were given (classes=); add it to them, or leave its "
      "samples out by ignore_other_classes"));
}

void AddClassNotes(int64_t num_left_out, const std::vector<std::string>& names,
                   const std::vector<std::string>& class_names,
                   const std::vector<int64_t>& labels, bool are_given,
                   std::vector<LoadNote>& notes) {
  if (!names.empty()) {
    AddNote(
        absl::StrCat("left out: ", CountText(num_left_out, "sample"),
                     " of classes that were not given: ", QuotedNames(names)),
        /*is_warning=*/false, notes);
  }
  std::vector<bool> has_sample(class_names.size());
  for (const int64_t label : labels) {
    has_sample[static_cast<size_t>(label)] = true;
  }
  std::vector<std::string> empty;
  for (size_t i = 0; i < class_names.size(); ++i) {
    if (!has_sample[i]) empty.push_back(class_names[i]);
  }
  if (empty.empty()) return;
  AddNote(absl::StrCat("no sample of ",
                       empty.size() == 1 ? "class " : "the classes ",
                       QuotedNames(empty)),
          /*is_warning=*/!are_given, notes);
}

}  // namespace datasetd
