#include "server/dataset/load_notes.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;

TEST(LoadNotesTest, ANoteIsEscapedAndCut) {
  std::vector<LoadNote> notes;
  AddNote("a\xff\n", /*is_warning=*/false, notes);
  EXPECT_EQ(notes[0].text, "a\\xff\\n");
  std::string text(kMaxLoadNoteBytes - 4, 'a');
  AddNote(text + "\u00e9\u00e9\u00e9", /*is_warning=*/false, notes);
  // No character is cut in two.
  EXPECT_EQ(notes[1].text, text + "...");
  EXPECT_THAT(CheckNotes(notes), IsOk());
}

TEST(LoadNotesTest, AWarningReplacesAnotherNote) {
  std::vector<LoadNote> notes;
  for (size_t i = 0; i < kMaxLoadNotes; ++i) {
    AddNote(std::to_string(i), /*is_warning=*/i > 1, notes);
  }
  AddNote("lost", /*is_warning=*/false, notes);
  AddNote("first", /*is_warning=*/true, notes);
  AddNote("second", /*is_warning=*/true, notes);
  AddNote("third", /*is_warning=*/true, notes);
  ASSERT_EQ(notes.size(), kMaxLoadNotes);
  EXPECT_EQ(notes.front().text, "2");
  EXPECT_EQ(notes.back().text, "second");
}

TEST(LoadNotesTest, NamesAreQuotedAndCounted) {
  EXPECT_EQ(QuotedNames({}), "");
  EXPECT_EQ(QuotedNames(std::vector<std::string>{"a", "b"}), "'a', 'b'");
  EXPECT_EQ(QuotedNames(std::vector<std::string>(12, "a")),
            "'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a' and 2 more");
}

}  // namespace
}  // namespace datasetd
