#include "server/dataset/load_notes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace datasetd {
namespace {

constexpr size_t kMaxQuotedNames = 10;

}  // namespace

void AddNote(absl::string_view text, bool is_warning,
             std::vector<LoadNote>& notes) {
  LoadNote note = {.text = PrintableUtf8(text), .is_warning = is_warning};
  if (note.text.size() > kMaxLoadNoteBytes) {
    constexpr absl::string_view kCut = "...";
    note.text.resize(kMaxLoadNoteBytes - kCut.size());
    note.text.resize(ValidUtf8Prefix(note.text));
    absl::StrAppend(&note.text, kCut);
  }
  if (notes.size() >= kMaxLoadNotes) {
    const auto last =
        std::find_if(notes.rbegin(), notes.rend(),
                     [](const LoadNote& other) { return !other.is_warning; });
    if (!is_warning || last == notes.rend()) return;
    notes.erase(std::prev(last.base()));
  }
  notes.push_back(std::move(note));
}

void AddExifNote(int64_t num_images, std::vector<LoadNote>& notes) {
  if (num_images == 0) return;
  AddNote(absl::StrCat(CountText(num_images, "image"),
                       num_images == 1 ? " carries" : " carry",
                       " an EXIF orientation that is not applied; "
                       "apply_exif=true applies it"),
          /*is_warning=*/true, notes);
}

size_t NoteBytes(absl::Span<const LoadNote> notes) {
  size_t bytes = 0;
  for (const LoadNote& note : notes) bytes += sizeof(note) + note.text.size();
  return bytes;
}

absl::Status CheckNotes(absl::Span<const LoadNote> notes) {
  if (notes.size() > kMaxLoadNotes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "notes: ", notes.size(), ", expected at most ", kMaxLoadNotes));
  }
  for (size_t i = 0; i < notes.size(); ++i) {
    const std::string& text = notes[i].text;
    if (!text.empty() && text.size() <= kMaxLoadNoteBytes &&
        ValidUtf8Prefix(text) == text.size()) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("notes[", i, "]: ", text.size(),
                     " bytes, expected UTF-8 of 1 to ", kMaxLoadNoteBytes));
  }
  return absl::OkStatus();
}

std::string QuotedNames(absl::Span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxQuotedNames); ++i) {
    absl::StrAppend(&text, i == 0 ? "'" : ", '", names[i], "'");
  }
  if (names.size() > kMaxQuotedNames) {
    absl::StrAppend(&text, " and ", names.size() - kMaxQuotedNames, " more");
  }
  return text;
}

std::string CountText(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace datasetd
