// Notes of a load: what it left out, changed or decided, in sentences for the
// user.

#ifndef DATASETD_SERVER_DATASET_LOAD_NOTES_H_
#define DATASETD_SERVER_DATASET_LOAD_NOTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace datasetd {

inline constexpr size_t kMaxLoadNotes = 32;
inline constexpr size_t kMaxLoadNoteBytes = 1024;

struct LoadNote {
  std::string text;
  bool is_warning = false;  // training may be affected
  bool operator==(const LoadNote&) const = default;
};

// Appends a note whose text is escaped as by PrintableUtf8 and cut to
// kMaxLoadNoteBytes. If there are kMaxLoadNotes, a warning replaces the last
// note that is none, and another note is dropped.
void AddNote(absl::string_view text, bool is_warning,
             std::vector<LoadNote>& notes);

// Adds the note of images whose EXIF orientation is not applied, if there are
// any.
void AddExifNote(int64_t num_images, std::vector<LoadNote>& notes);

// Memory of the texts.
size_t NoteBytes(absl::Span<const LoadNote> notes);

// Checks notes that a client or a file declares.
//   INVALID_ARGUMENT  too many, or one that is empty, too long or not UTF-8
absl::Status CheckNotes(absl::Span<const LoadNote> notes);

// "'a', 'b'"; of more than ten names, those and how many more there are.
std::string QuotedNames(absl::Span<const std::string> names);

// "1 image", "2 images".
std::string CountText(int64_t count, absl::string_view noun);

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_LOAD_NOTES_H_
