#include "server/readers/images/pushed_images.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::SetOptions;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Little(uint32_t value, size_t num_bytes = 4) {
  std::string bytes(num_bytes, '\0');
  std::memcpy(bytes.data(), &value, num_bytes);
  return bytes;
}

// A BMP of one colour.
std::string Bmp(int height, int width, char value) {
  const size_t row_bytes = (static_cast<size_t>(width) * 3 + 3) / 4 * 4;
  const std::string pixels(row_bytes * static_cast<size_t>(height), value);
  return "BM" + Little(54 + static_cast<uint32_t>(pixels.size())) + Little(0) +
         Little(54) + Little(40) + Little(static_cast<uint32_t>(width)) +
         Little(static_cast<uint32_t>(height)) + Little(1, 2) + Little(24, 2) +
         Little(0) + Little(static_cast<uint32_t>(pixels.size())) + Little(0) +
         Little(0) + Little(0) + Little(0) + pixels;
}

std::string File(const std::string& bytes) {
  return Little(static_cast<uint32_t>(bytes.size())) + bytes;
}

FieldSpec Image(const std::string& name, int64_t height = kAnyExtent,
                int64_t width = kAnyExtent) {
  return {.name = name, .shape = {height, width, 3}, .is_image = true};
}

PushedSource::NextBlock Blocks(std::string bytes, size_t block_bytes) {
  return [bytes = std::move(bytes),
          block_bytes](std::string* block) mutable -> absl::StatusOr<bool> {
    *block = bytes.substr(0, block_bytes);
    bytes.erase(0, block->size());
    return !block->empty();
  };
}

class PushedImagesTest : public ::testing::Test {
 protected:
  // An image and a label of one byte, unless the caller sets others.
  static PushedImagesOptions Options(int64_t num_samples) {
    PushedImagesOptions options;
    options.info.num_samples = num_samples;
    options.info.fields = {Image("image"), {.name = "label", .shape = {}}};
    options.is_encoded = {true, false};
    return options;
  }

  absl::StatusOr<std::unique_ptr<SampleSource>> Open(
      PushedImagesOptions options, std::string bytes,
      size_t block_bytes = 1000) {
    options.account = {.budget = &budget_, .lists = &lists_};
    options.may_have_all = may_have_all_;
    const absl::Status status =
        CheckPushedInfo(&options.info, options.is_encoded);
    if (!status.ok()) return status;
    return OpenPushedImages(
        std::move(options), Blocks(std::move(bytes), block_bytes),
        [this] { return is_cancelled_; }, &space_);
  }

  absl::Status Receive(PushedImagesOptions options, std::string bytes) {
    auto source = Open(std::move(options), std::move(bytes));
    return source.ok() ? (*source)->Receive() : source.status();
  }

  // The first value of each field of sample `index`.
  static absl::StatusOr<std::vector<int>> Decode(const SampleSource& source,
                                                 int64_t index) {
    RawSample raw;
    SampleProbe probe;
    absl::Status status = source.Fetch(index, raw);
    if (status.ok()) status = source.Probe(index, raw, probe);
    if (!status.ok()) return status;
    std::vector<std::vector<uint8_t>> pixels;
    std::vector<absl::Span<uint8_t>> fields;
    auto size = probe.sizes.begin();
    for (FieldSpec field : source.info().fields) {
      if (field.is_ragged) {
        field.shape[0] = size->height;
        field.shape[1] = size->width;
        ++size;
      }
      pixels.emplace_back(static_cast<size_t>(field.sample_bytes()));
    }
    for (auto& field : pixels) fields.push_back(absl::MakeSpan(field));
    status = source.Decode(index, raw, fields);
    if (!status.ok()) return status;
    std::vector<int> firsts;
    for (const auto& field : pixels) firsts.push_back(field[0]);
    return firsts;
  }

  SpoolSpace space_{"", 1 << 20, "push_spool_mib"};
  DecodeBudget budget_{DecodeBudget::Limits()};
  DecodeBudget lists_{DecodeBudget::Limits()};
  bool may_have_all_ = true;
  bool is_cancelled_ = false;
};

TEST_F(PushedImagesTest, BlocksMayBeCutAnywhere) {
  const std::string bytes = File(Bmp(2, 3, 5)) + "a" + File(Bmp(4, 1, 6)) + "b";
  for (size_t block_bytes = 1; block_bytes <= bytes.size(); ++block_bytes) {
    const auto source = Open(Options(2), bytes, block_bytes);
    ASSERT_THAT(source, IsOk());
    EXPECT_TRUE((*source)->info().is_awaited);
    ASSERT_THAT((*source)->Receive(), IsOk());
    EXPECT_FALSE((*source)->info().is_awaited);
    EXPECT_TRUE((*source)->info().is_encoded);
    EXPECT_THAT((*source)->info().fields[0].shape, ElementsAre(2, 3, 3));
    // In any order.
    const auto second = Decode(**source, 1);
    ASSERT_THAT(second, IsOk());
    EXPECT_THAT(*second, ElementsAre(6, 'b'));
    const auto first = Decode(**source, 0);
    ASSERT_THAT(first, IsOk());
    EXPECT_THAT(*first, ElementsAre(5, 'a'));
    EXPECT_EQ((*source)->Locate(1).path, "sample 1");
    EXPECT_EQ((*source)->Locate(1).size_bytes,
              static_cast<int64_t>(File(Bmp(4, 1, 6)).size() + 1));
  }
}

TEST_F(PushedImagesTest, SpaceIsGivenBack) {
  {
    const auto source = Open(Options(1), File(Bmp(1, 1, 0)) + "a");
    ASSERT_THAT(source, IsOk());
    EXPECT_EQ(space_.used_bytes(), 0);
    ASSERT_THAT((*source)->Receive(), IsOk());
    EXPECT_EQ(space_.used_bytes(),
              static_cast<int64_t>(File(Bmp(1, 1, 0)).size() + 1));
    EXPECT_GT(lists_.used_bytes(), 0);
  }
  EXPECT_EQ(space_.used_bytes(), 0);
  EXPECT_EQ(lists_.used_bytes(), 0);
}

TEST_F(PushedImagesTest, SeveralImagesASample) {
  PushedImagesOptions options = Options(1);
  options.info.fields = {
      Image("a", 2, 2), {.name = "x", .shape = {2}}, Image("mask")};
  options.info.fields[2].is_mask = true;
  options.is_encoded = {true, false, true};
  auto source = Open(options, File(Bmp(2, 2, 7)) + "xy" + File(Bmp(1, 3, 8)));
  ASSERT_THAT(source, IsOk());
  ASSERT_THAT((*source)->Receive(), IsOk());
  EXPECT_THAT((*source)->info().fields[2].shape, ElementsAre(1, 3, 3));
  const auto values = Decode(**source, 0);
  ASSERT_THAT(values, IsOk());
  EXPECT_THAT(*values, ElementsAre(7, 'x', 8));

  source = Open(options, File(Bmp(2, 3, 7)) + "xy" + File(Bmp(1, 3, 8)));
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->Receive(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sample 0: field 'a': 2x3 pixels (height x "
                                 "width), and the push declares 2x2")));
}

TEST_F(PushedImagesTest, BadSamplesAreFoundWhenTheyAreDecoded) {
  const auto source = Open(
      Options(4), File("") + "a" + File("GIF89a") + "b" + File(Bmp(1, 2, 9)) +
                      "c" + File(Bmp(1, 2, 9).substr(0, 30)) + "d");
  ASSERT_THAT(source, IsOk());
  ASSERT_THAT((*source)->Receive(), IsOk());
  EXPECT_THAT((*source)->info().fields[0].shape, ElementsAre(1, 2, 3));
  EXPECT_THAT(Decode(**source, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, "empty"));
  EXPECT_THAT(Decode(**source, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a GIF")));
  EXPECT_THAT(Decode(**source, 2), IsOk());
  EXPECT_THAT(Decode(**source, 3),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("damaged BMP: ends in its header")));
  EXPECT_THAT(Receive(Options(1), File("GIF89a") + "b"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("sample 0: a GIF"),
                             HasSubstr("none of the first 1 samples"))));
}

TEST_F(PushedImagesTest, TheStreamIsWhatTheHeaderDeclares) {
  const std::string sample = File(Bmp(1, 1, 0)) + "a";
  EXPECT_THAT(
      Receive(Options(2), sample),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "the samples ended after 1 of 2 that the header declares"));
  EXPECT_THAT(
      Receive(Options(1), sample.substr(0, sample.size() - 1)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "the samples ended after 0 of 1 that the header declares"));
  EXPECT_THAT(
      Receive(Options(1), ""),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "the samples ended after 0 of 1 that the header declares"));
  EXPECT_THAT(Receive(Options(1), sample + "x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "more was sent than the 1 samples that the header "
                       "declares"));
  EXPECT_THAT(Receive(Options(1), Little(0x80000000) + "x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "sample 0, field 'image': its file has 2147483648 "
                       "bytes, and an image may have 268435456"));
  EXPECT_EQ(space_.used_bytes(), 0);
}

TEST_F(PushedImagesTest, AFullSpoolEndsThePush) {
  EXPECT_THAT(Receive(Options(1), File(std::string(2 << 20, 'x'))),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("push_spool_mib")));
  may_have_all_ = false;
  EXPECT_THAT(Receive(Options(1), File(std::string(600 << 10, 'x'))),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("this user's pushes")));
  EXPECT_EQ(space_.used_bytes(), 0);
}

TEST_F(PushedImagesTest, TheListOfSamplesIsPaidFor) {
  DecodeBudget small({.sample_bytes = 1, .total_bytes = 2});
  PushedImagesOptions options = Options(2);
  options.account = {.budget = &budget_, .lists = &small};
  const auto source = OpenPushedImages(
      options, Blocks(File("") + "a" + File("") + "b", 100), nullptr, &space_);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->Receive(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("max_sample_memory_mib")));
}

TEST_F(PushedImagesTest, ACancelledPushIsDecodedNoMore) {
  const auto source = Open(Options(1), File(Bmp(1, 1, 0)) + "a");
  ASSERT_THAT(source, IsOk());
  ASSERT_THAT((*source)->Receive(), IsOk());
  is_cancelled_ = true;
  EXPECT_THAT(Decode(**source, 0),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("broken off")));
}

TEST_F(PushedImagesTest, OptionsAreThoseOfImages) {
  PushedImagesOptions options = Options(1);
  SetOptions(options.spec, {{"max_pixels", "5"}});
  EXPECT_THAT(
      Receive(options, File(Bmp(2, 3, 5)) + "a"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sample 0: ")));
  EXPECT_THAT(Receive(options, File(Bmp(2, 2, 5)) + "a"), IsOk());
  SetOptions(options.spec, {{"channels", "3"}});
  EXPECT_THAT(Receive(options, ""),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("option channels is '3', expected as_is")));
  SetOptions(options.spec, {{"quality", "3"}});
  EXPECT_THAT(Receive(options, ""),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("no option 'quality'"),
                             HasSubstr("apply_exif, channels"))));
}

TEST_F(PushedImagesTest, ChannelsAreThoseOfTheShape) {
  PushedImagesOptions options = Options(1);
  options.info.fields[0].shape[2] = 1;
  const std::string bytes = File(Bmp(2, 3, 5)) + "a";
  EXPECT_THAT(Receive(options, bytes), IsOk());
  SetOptions(options.spec, {{"channels", "as_is"}});
  EXPECT_THAT(Receive(options, bytes),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("3 channels, and the push declares 1")));
  options.info.fields[0].shape[2] = 3;
  EXPECT_THAT(Receive(options, bytes), IsOk());
}

TEST_F(PushedImagesTest, TheHeaderIsChecked) {
  const auto check = [&](FieldSpec field) {
    PushedImagesOptions options = Options(1);
    options.info.fields[0] = std::move(field);
    return Receive(options, "");
  };
  FieldSpec field = Image("image");
  field.shape[2] = 2;
  EXPECT_THAT(check(field), StatusIs(absl::StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr("field 'image'"),
                                           HasSubstr("(-1, -1, 2)"),
                                           HasSubstr("C of 1, 3 or 4"))));
  field = Image("image");
  field.dtype = Dtype::kFloat32;
  EXPECT_THAT(check(field), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("an image of uint8")));
  field = Image("image");
  field.largest = {1, 1};
  EXPECT_THAT(check(field), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("leave them out")));
  EXPECT_THAT(check(Image("image", kAnyExtent, 3)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("every extent is at least 1")));
  PushedImagesOptions options = Options(1);
  options.info.fields.push_back(Image("other"));
  options.is_encoded.push_back(false);
  EXPECT_THAT(Receive(options, ""),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("field 'other'"),
                             HasSubstr("encode this one, too"))));
}

}  // namespace
}  // namespace datasetd
