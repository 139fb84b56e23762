#include "server/readers/pushed_source.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two fields, 3 and 2 bytes a sample.
SourceInfo Info(int64_t num_samples) {
  SourceInfo info;
  info.num_samples = num_samples;
  info.fields = {{.name = "a", .dtype = Dtype::kUint8, .shape = {3}},
                 {.name = "b", .dtype = Dtype::kInt16, .shape = {}}};
  return info;
}

PushedSource::NextBlock Blocks(std::vector<std::string> blocks) {
  std::reverse(blocks.begin(), blocks.end());
  return [blocks](std::string* block) mutable -> absl::StatusOr<bool> {
    if (blocks.empty()) return false;
    *block = std::move(blocks.back());
    blocks.pop_back();
    return true;
  };
}

// Reads in calls of `at_once`; the fields' bytes.
absl::StatusOr<std::pair<std::string, std::string>> ReadAll(PushedSource source,
                                                            int64_t at_once) {
  std::string a(static_cast<size_t>(source.info().num_samples * 3), '\0');
  std::string b(static_cast<size_t>(source.info().num_samples * 2), '\0');
  for (int64_t done = 0; done < source.info().num_samples;) {
    const int64_t count = std::min(at_once, source.info().num_samples - done);
    const absl::Span<uint8_t> fields[] = {
        {reinterpret_cast<uint8_t*>(a.data()) + done * 3,
         static_cast<size_t>(count * 3)},
        {reinterpret_cast<uint8_t*>(b.data()) + done * 2,
         static_cast<size_t>(count * 2)}};
    if (absl::Status status = source.Read(done, count, fields); !status.ok()) {
      return status;
    }
    done += count;
  }
  return std::make_pair(a, b);
}

TEST(PushedSourceTest, BlocksMayBeCutAnywhere) {
  const std::string bytes = "AAA11BBB22CCC33";
  for (size_t size = 1; size <= bytes.size() + 1; ++size) {
    for (const int64_t at_once : {1, 2, 3}) {
      std::vector<std::string> blocks = {""};
      for (size_t i = 0; i < bytes.size(); i += size) {
        blocks.push_back(bytes.substr(i, size));
      }
      const auto read = ReadAll(PushedSource(Info(3), Blocks(blocks)), at_once);
      ASSERT_THAT(read, IsOk());
      EXPECT_EQ(read->first, "AAABBBCCC");
      EXPECT_EQ(read->second, "112233");
    }
  }
}

TEST(PushedSourceTest, TooFewAndTooManyBytesAreNamed) {
  EXPECT_THAT(ReadAll(PushedSource(Info(3), Blocks({"AAA11BBB2"})), 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ended after 1 of 3")));
  EXPECT_THAT(ReadAll(PushedSource(Info(3), Blocks({})), 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("ended after 0 of 3")));
  EXPECT_THAT(ReadAll(PushedSource(Info(1), Blocks({"AAA11x"})), 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more was sent than the 1 samples")));
  EXPECT_THAT(
      ReadAll(PushedSource(Info(1), Blocks({"AAA11", "", "x"})), 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more was sent")));
}

TEST(PushedSourceTest, TheSendersErrorIsPassedOn) {
  const auto fail = [](std::string*) -> absl::StatusOr<bool> {
    return absl::CancelledError("gone");
  };
  EXPECT_THAT(ReadAll(PushedSource(Info(3), fail), 1),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("gone")));
}

TEST(CheckPushedInfoTest, NamesWhatIsWrong) {
  SourceInfo right = Info(1);
  EXPECT_THAT(CheckPushedInfo(&right), IsOk());
  const auto error_of = [](SourceInfo info) {
    const absl::Status status = CheckPushedInfo(&info);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error_of(Info(0)), HasSubstr("num_samples: 0"));
  EXPECT_THAT(error_of(Info(-1)), HasSubstr("num_samples: -1"));
  SourceInfo info = Info(1);
  info.fields.clear();
  EXPECT_THAT(error_of(info), HasSubstr("fields: 0"));
  info = Info(1);
  info.fields.resize(65, info.fields[0]);
  EXPECT_THAT(error_of(info), HasSubstr("fields: 65"));
  for (const std::string& name :
       {std::string(), std::string("b"), std::string("1st"), std::string("a b"),
        std::string("\xff"), std::string(65, 'x')}) {
    info = Info(1);
    info.fields[0].name = name;
    EXPECT_THAT(error_of(info), HasSubstr("cannot name a field")) << name;
  }
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{0},
                                         {-2},
                                         {1, 1, 1, 1, 1, 1, 1, 1, 1},
                                         {int64_t{1} << 31},
                                         {int64_t{1} << 62, 4},
                                         {1 << 16, 1 << 16}}) {
    info = Info(1);
    info.fields[0].shape = shape;
    EXPECT_THAT(error_of(info), AllOf(HasSubstr("'a'"), HasSubstr("shape")));
  }
  info = Info(1);
  info.fields[0].shape = {1 << 30};
  EXPECT_THAT(error_of(info), HasSubstr("bytes a sample"));
  info = Info(1);
  info.fields[0].is_image = true;
  EXPECT_THAT(error_of(info), HasSubstr("expected an image"));
  info.fields[0].shape = {2, 2, 5};
  EXPECT_THAT(error_of(info), HasSubstr("expected an image"));
  info = Info(1);
  info.fields[0].dtype = static_cast<Dtype>(0);
  EXPECT_THAT(error_of(info), HasSubstr("dtype"));
}

TEST(CheckPushedInfoTest, NotesAreBoundedAndEscaped) {
  SourceInfo info = Info(1);
  info.notes = {{.text = "a\nb\x1b", .is_warning = true}};
  EXPECT_THAT(CheckPushedInfo(&info), IsOk());
  EXPECT_EQ(
      info.notes,
      (std::vector<LoadNote>{{.text = "a\\nb\\x1b", .is_warning = true}}));
  const std::pair<std::vector<LoadNote>, const char*> wrong[] = {
      {std::vector<LoadNote>(33, {.text = "a"}), "notes: 33, expected"},
      {{{.text = "a"}, {.text = ""}}, "notes[1]: 0 bytes"},
      {{{.text = std::string(1025, 'a')}}, "notes[0]: 1025 bytes"},
      {{{.text = "\xff"}}, "expected UTF-8"}};
  for (const auto& [notes, message] : wrong) {
    info.notes = notes;
    EXPECT_THAT(
        CheckPushedInfo(&info),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

// Images of 2 bytes a pixel, as a client declares them.
SourceInfo RaggedInfo(int64_t num_samples, ImageSize largest,
                      int64_t num_pixels) {
  SourceInfo info;
  info.num_samples = num_samples;
  info.fields = {{.name = "image",
                  .shape = {kAnyExtent, kAnyExtent, 2},
                  .is_image = true,
                  .largest = largest,
                  .num_pixels = num_pixels},
                 {.name = "label", .shape = {}}};
  return info;
}

std::string SizesText(std::vector<std::pair<int32_t, int32_t>> sizes) {
  std::string text;
  for (const auto& [height, width] : sizes) {
    text.append(reinterpret_cast<const char*>(&height), sizeof(height));
    text.append(reinterpret_cast<const char*>(&width), sizeof(width));
  }
  return text;
}

TEST(PushedSourceTest, TheListOfSizesIsPaidForBeforeItIsMade) {
  DecodeBudget lists({.sample_bytes = 64 << 20, .total_bytes = 64 << 20});
  const DecodeAccount account = {.uid = 1000, .lists = &lists};
  {
    PushedSource source(RaggedInfo(1000, {1, 1}, 1000), Blocks({}), account);
    EXPECT_THAT(source.ReadIndex(0),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_GE(lists.used_bytes(), 32'000);
  }
  EXPECT_EQ(lists.used_bytes(), 0);
  PushedSource source(RaggedInfo(4 << 20, {1, 1}, 4 << 20), Blocks({}),
                      account);
  EXPECT_THAT(source.ReadIndex(0),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("lists of samples and files")));
}

TEST(PushedSourceTest, SizesComeBeforeTheSamplesThatHaveThem) {
  SourceInfo info = RaggedInfo(3, {2, 3}, 6 + 1 + 4);
  ASSERT_THAT(CheckPushedInfo(&info), IsOk());
  const std::string bytes =
      SizesText({{2, 3}, {1, 1}, {2, 2}}) + "aabbccddeeff0gg1hhiijjkk2";
  for (size_t size = 1; size <= bytes.size(); size += 3) {
    std::vector<std::string> blocks;
    for (size_t i = 0; i < bytes.size(); i += size) {
      blocks.push_back(bytes.substr(i, size));
    }
    PushedSource source(info, Blocks(blocks));
    const auto index = source.ReadIndex(0);
    ASSERT_THAT(index, IsOk());
    EXPECT_EQ(index->size_bytes(), 48);
    EXPECT_LE(index->size_bytes(), info.fields[0].packed_bytes);
    std::string image(48, 'x');
    std::string label(3, 'x');
    // The first alone, then two.
    for (const int64_t first : {0, 1}) {
      const int64_t count = first == 0 ? 1 : 2;
      const int64_t begin = index->BytesBefore(first);
      const absl::Span<uint8_t> fields[] = {
          {reinterpret_cast<uint8_t*>(image.data()) + begin,
           static_cast<size_t>(index->BytesBefore(first + count) - begin)},
          {reinterpret_cast<uint8_t*>(label.data()) + first,
           static_cast<size_t>(count)}};
      ASSERT_THAT(source.Read(first, count, fields), IsOk());
    }
    const std::string zeros(16, '\0');
    EXPECT_EQ(image, "aabbccddeeff" + zeros.substr(12) + "gg" +
                         zeros.substr(2) + "hhiijjkk" + zeros.substr(8));
    EXPECT_EQ(label, "012");
  }
}

TEST(PushedSourceTest, SizesThatTheHeaderDoesNotAllowAreNamed) {
  const auto error_of = [](const std::string& bytes) {
    SourceInfo info = RaggedInfo(2, {4, 4}, 20);
    EXPECT_THAT(CheckPushedInfo(&info), IsOk());
    PushedSource source(info, Blocks({bytes}));
    const absl::Status status = source.ReadIndex(0).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error_of(SizesText({{4, 4}, {5, 1}})),
              AllOf(HasSubstr("sample 1, field 'image'"), HasSubstr("5x1"),
                    HasSubstr("4x4")));
  EXPECT_THAT(error_of(SizesText({{0, 4}, {4, 4}})), HasSubstr("0x4"));
  EXPECT_THAT(error_of(SizesText({{4, -1}, {4, 4}})), HasSubstr("4x-1"));
  EXPECT_THAT(error_of(SizesText({{4, 4}, {4, 4}})),
              HasSubstr("have not the 20 pixels"));
  EXPECT_THAT(error_of(SizesText({{4, 4}, {1, 1}})),
              HasSubstr("have not the 20 pixels"));
  EXPECT_THAT(error_of(SizesText({{4, 4}})), HasSubstr("ended after 0 of 2"));
}

TEST(CheckPushedInfoTest, WhatAPackedFieldDeclaresMustBePossible) {
  const auto error_of = [](SourceInfo info) {
    const absl::Status status = CheckPushedInfo(&info);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error_of(RaggedInfo(2, {0, 4}, 20)), HasSubstr("largest is 0"));
  EXPECT_THAT(error_of(RaggedInfo(2, {1 << 25, 1}, 20)),
              HasSubstr("largest is 33554432"));
  // The product of these is in no integer.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(error_of(RaggedInfo(2, {kMost, kMost}, 20)),
              HasSubstr("largest is 9223372036854775807"));
  EXPECT_THAT(error_of(RaggedInfo(2, {kMost, -kMost}, 20)),
              HasSubstr("x -9223372036854775807"));
  EXPECT_THAT(error_of(RaggedInfo(2, {1 << 14, 1 << 14}, 20)),
              HasSubstr("bytes a sample"));
  EXPECT_THAT(error_of(RaggedInfo(2, {4, 4}, 1)), HasSubstr("num_pixels is 1"));
  EXPECT_THAT(error_of(RaggedInfo(2, {4, 4}, 50)), HasSubstr("cannot have"));
  EXPECT_THAT(error_of(RaggedInfo(int64_t{1} << 62, {4, 4}, 50)),
              HasSubstr("more than any memory holds"));
  SourceInfo info = RaggedInfo(2, {4, 4}, 20);
  info.fields[0].shape = {kAnyExtent, 4, 2};
  EXPECT_THAT(error_of(info), HasSubstr("expected an image as (-1, -1, C)"));
  info.fields[0].shape = {kAnyExtent, kAnyExtent, 5};
  EXPECT_THAT(error_of(info), HasSubstr("C of 1 to 4"));
  info.fields[0].shape = {kAnyExtent, kAnyExtent, 2};
  info.fields[0].is_image = false;
  EXPECT_THAT(error_of(info), HasSubstr("sequences as (-1) or (-1, C)"));
}

// Sequences of 2 bytes a step.
SourceInfo SequenceInfo(int64_t num_samples, int64_t largest,
                        int64_t num_steps) {
  SourceInfo info = RaggedInfo(num_samples, {largest, 1}, num_steps);
  info.fields[0].is_image = false;
  info.fields[0].shape = {kAnyExtent, 2};
  return info;
}

TEST(PushedSourceTest, SequencesHaveAnyNumberOfSteps) {
  SourceInfo info = SequenceInfo(4, 3, 5);
  ASSERT_THAT(CheckPushedInfo(&info), IsOk());
  PushedSource source(info, Blocks({SizesText({{2, 1}, {0, 1}, {3, 1}, {0, 1}}),
                                    "aabb0", "1ccddee2", "3"}));
  const auto index = source.ReadIndex(0);
  ASSERT_THAT(index, IsOk());
  EXPECT_EQ(index->size_bytes(), 32);
  EXPECT_EQ(index->size(1), (ImageSize{0, 1}));
  std::string steps(32, 'x');
  std::string label(4, 'x');
  const absl::Span<uint8_t> fields[] = {
      {reinterpret_cast<uint8_t*>(steps.data()), 32},
      {reinterpret_cast<uint8_t*>(label.data()), 4}};
  ASSERT_THAT(source.Read(0, 4, fields), IsOk());
  const std::string zeros(16, '\0');
  EXPECT_EQ(steps, "aabb" + zeros.substr(4) + "ccddee" + zeros.substr(6));
  EXPECT_EQ(label, "0123");
  FieldSpec described = info.fields[0];
  index->Describe(&described);
  EXPECT_EQ(described.smallest, (ImageSize{0, 1}));
  EXPECT_EQ(described.largest, (ImageSize{3, 1}));
  EXPECT_EQ(described.num_pixels, 5);
  // As a cache has it.
  const auto checked = RaggedIndex::Check(info.fields[0], index->samples());
  ASSERT_THAT(checked, IsOk());
  EXPECT_EQ(checked->size_bytes(), 32);
}

TEST(PushedSourceTest, LengthsThatTheHeaderDoesNotAllowAreNamed) {
  for (const auto& [first, words] :
       {std::pair<std::pair<int32_t, int32_t>, const char*>{{2, 2},
                                                            "2x2 (steps x 1)"},
        {{-1, 1}, "-1x1"},
        {{4, 1}, "largest 3x1"},
        {{0, 0}, "0x0"},
        {{3, 1}, "have not the 5 steps"}}) {
    SourceInfo info = SequenceInfo(2, 3, 5);
    ASSERT_THAT(CheckPushedInfo(&info), IsOk());
    PushedSource source(info, Blocks({SizesText({first, {3, 1}})}));
    EXPECT_THAT(source.ReadIndex(0),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  }
}

TEST(CheckPushedInfoTest, WhatSequencesDeclareMustBePossible) {
  const auto expect = [](SourceInfo info, const char* words) {
    EXPECT_THAT(CheckPushedInfo(&info),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  expect(SequenceInfo(2, 4, 0), "no steps at all");
  expect(SequenceInfo(2, 4, -1), "num_pixels is -1");
  expect(SequenceInfo(2, 4, 12), "cannot have");
  expect(SequenceInfo(2, -1, 1), "largest is -1 x 1");
  expect(SequenceInfo(2, kMost, 1), "expected steps x 1");
  expect(SequenceInfo(2, 1 << 28, 1 << 28), "bytes a sample");
  SourceInfo info = SequenceInfo(2, 4, 5);
  info.fields[0].largest.width = 2;
  expect(info, "largest is 4 x 2");
  info = SequenceInfo(2, 4, 5);
  for (const int64_t channels : {int64_t{0}, int64_t{-1}, kMost}) {
    info.fields[0].shape = {kAnyExtent, channels};
    expect(info, "sequences as (-1) or (-1, C)");
  }
  info.fields[0].shape = {kAnyExtent, 2, 2};
  expect(info, "sequences as (-1) or (-1, C)");
  info.fields[0].shape = {kAnyExtent, 2};
  info.fields[0].is_mask = true;
  expect(info, "a mask, and no image");
}

}  // namespace
}  // namespace datasetd
