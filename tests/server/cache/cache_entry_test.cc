#include "server/cache/cache_entry.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                             text.size());
}

CacheHeader Header() {
  CacheHeader header;
  header.spec_id =
      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  header.content_hash = std::string(32, 'f') + std::string(32, '0');
  header.owner_uid = 1000;
  header.stored_by_uid = 1001;
  header.num_samples = 2000;
  header.fields = {{.name = "image", .shape = {32, 32, 3}, .is_image = true},
                   {.name = "label", .dtype = Dtype::kInt64}};
  header.class_names = {"cat", "", "dog"};
  // Names of files are bytes.
  header.bad_samples = {
      .num_samples = 7,
      .num_transient = 2,
      .listed = {{.index = 3, .path = "/a/\xff", .offset = 5, .reason = "cut"}},
      .num_text_bytes = 7};
  header.notes = {{.text = "left out: a", .is_warning = true}, {.text = "b"}};
  // 6,144,000 bytes and 16,000.
  header.checksums = {{1, 2}, {3}};
  return header;
}

// Its image samples differ in size.
CacheHeader PackedHeader() {
  CacheHeader header = Header();
  header.fields[0].shape = {kAnyExtent, kAnyExtent, 3};
  header.fields[0].smallest = {7, 9};
  header.fields[0].largest = {40, 50};
  header.fields[0].num_pixels = 2'000'000;
  header.fields[0].packed_bytes = 6'001'600;
  // 6,001,600 bytes, 16,000 and 32,000.
  header.checksums = {{1, 2}, {3}, {4}};
  return header;
}

TEST(CacheEntryTest, PackedFieldsHaveAnIndexBehindAllSamples) {
  const CacheHeader header = PackedHeader();
  const auto decoded = DecodeCacheHeader(Bytes(EncodeCacheHeader(header)));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, header);
  const auto layout = LayOutCacheEntry(header);
  ASSERT_THAT(layout, IsOk());
  ASSERT_EQ(layout->places.size(), 3u);
  EXPECT_EQ(layout->places[0].size_bytes, 6'001'600);
  EXPECT_FALSE(layout->places[1].is_index);
  EXPECT_TRUE(layout->places[2].is_index);
  EXPECT_EQ(layout->places[2].field, 0u);
  EXPECT_EQ(layout->places[2].size_bytes, 2000 * 16);
  EXPECT_EQ(layout->places[2].offset_bytes % 4096, 0);
  EXPECT_EQ(layout->file_bytes, layout->places[2].offset_bytes + 2000 * 16);
}

TEST(CacheEntryTest, SequencesAreKept) {
  CacheHeader header = PackedHeader();
  header.fields[0].is_image = false;
  header.fields[0].shape = {kAnyExtent};
  header.fields[0].smallest = {0, 1};
  header.fields[0].largest = {1 << 25, 1};
  const auto decoded = DecodeCacheHeader(Bytes(EncodeCacheHeader(header)));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, header);
  EXPECT_THAT(LayOutCacheEntry(header), IsOk());
  header.fields[0].shape = {kAnyExtent, 2};
  EXPECT_THAT(LayOutCacheEntry(header), IsOk());
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{kAnyExtent, 0},
                                            {kAnyExtent, -1},
                                            {kAnyExtent, 2, 2}}) {
    header.fields[0].shape = shape;
    EXPECT_THAT(LayOutCacheEntry(header),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(CacheEntryTest, WhatIsEncodedIsDecoded) {
  CacheHeader header = Header();
  header.class_names.assign(100, std::string(60'000, '\xff'));
  const auto decoded = DecodeCacheHeader(Bytes(EncodeCacheHeader(header)));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, header);
}

TEST(CacheEntryTest, FieldsLieAlignedAndApart) {
  const auto layout = LayOutCacheEntry(Header());
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->header_bytes,
            static_cast<int64_t>(EncodeCacheHeader(Header()).size()));
  EXPECT_EQ(layout->places[0].offset_bytes, 4096);
  EXPECT_EQ(layout->places[0].size_bytes, 2000 * 3072);
  EXPECT_EQ(layout->places[0].num_blocks, 2);
  // 4096 + 6,144,000 is a multiple of 4096.
  EXPECT_EQ(layout->places[1].offset_bytes, 4096 + 2000 * 3072);
  EXPECT_EQ(layout->file_bytes, 4096 + 2000 * 3072 + 2000 * 8);
}

TEST(CacheEntryTest, EveryCutAndEveryChangedByteIsNoticed) {
  const std::string good = EncodeCacheHeader(Header());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(DecodeCacheHeader(Bytes(good.substr(0, size))),
                StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_THAT(DecodeCacheHeader(Bytes(bad)),
                StatusIs(absl::StatusCode::kDataLoss))
        << i;
  }
}

// With a right checksum, as one who means it would.
std::string Forge(std::string text) {
  const uint64_t checksum = CacheChecksum(Bytes(text).subspan(32));
  std::memcpy(text.data() + 24, &checksum, sizeof(checksum));
  const uint64_t size = text.size();
  std::memcpy(text.data() + 16, &size, sizeof(size));
  return text;
}

TEST(CacheEntryTest, ForgedHeadersAreRefusedOrMakeSense) {
  const std::string headers[] = {EncodeCacheHeader(Header()),
                                 EncodeCacheHeader(PackedHeader())};
  std::mt19937 random(1);
  int num_refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bad = headers[i % 2];
    for (int changes = 1 + i % 4; changes > 0; --changes) {
      bad[32 + random() % (bad.size() - 32)] = static_cast<char>(random());
    }
    if (i % 3 == 0) bad.resize(32 + random() % (bad.size() - 32));
    const auto decoded = DecodeCacheHeader(Bytes(Forge(bad)));
    if (!decoded.ok()) {
      ++num_refused;
      EXPECT_EQ(decoded.status().code(), absl::StatusCode::kDataLoss);
      continue;
    }
    EXPECT_EQ(EncodeCacheHeader(*decoded).size(), bad.size());
    EXPECT_THAT(LayOutCacheEntry(*decoded), IsOk());
  }
  EXPECT_GT(num_refused, 10000);
}

TEST(CacheEntryTest, AReportWithMoreThanItsLimitsIsRefused) {
  const auto expect_damaged = [](auto change) {
    CacheHeader header = Header();
    change(header.bad_samples);
    EXPECT_THAT(DecodeCacheHeader(Bytes(EncodeCacheHeader(header))),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("report")));
  };
  expect_damaged([](BadSampleReport& r) { r.num_samples = 0; });
  expect_damaged([](BadSampleReport& r) {
    r.num_samples = kMaxListedBadSamples + 1;
    r.listed.assign(kMaxListedBadSamples + 1, {});
  });
  expect_damaged([](BadSampleReport& r) {
    r.listed[0].reason = std::string(kMaxReportBytes, 'r');
  });
}

TEST(CacheEntryTest, NotesWithMoreThanTheirLimitsAreRefused) {
  for (const std::vector<LoadNote>& notes :
       {std::vector<LoadNote>(kMaxLoadNotes + 1, {.text = "a"}),
        std::vector<LoadNote>{{.text = ""}},
        std::vector<LoadNote>{{.text = std::string(1025, 'a')}}}) {
    CacheHeader header = Header();
    header.notes = notes;
    EXPECT_THAT(DecodeCacheHeader(Bytes(EncodeCacheHeader(header))),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("notes")));
  }
}

TEST(CacheEntryTest, AFieldThatThisDaemonDoesNotKnowIsNoticed) {
  std::string text = EncodeCacheHeader(Header());
  text += std::string("\xf8\x01\x05", 3);  // field 31, a varint of 5
  EXPECT_THAT(DecodeCacheHeader(Bytes(Forge(text))),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("the size of its header is wrong")));
}

TEST(CacheEntryTest, WhatCannotBeCachedIsRefused) {
  const auto expect_invalid = [](auto change, const char* words) {
    CacheHeader header = Header();
    change(header);
    EXPECT_THAT(LayOutCacheEntry(header),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  };
  const auto expect_invalid_packed = [](auto change) {
    CacheHeader header = PackedHeader();
    change(header.fields[0]);
    EXPECT_THAT(
        LayOutCacheEntry(header),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'image'")));
  };
  expect_invalid_packed([](FieldSpec& f) { f.packed_bytes = 0; });
  expect_invalid_packed([](FieldSpec& f) { f.packed_bytes = 17; });
  expect_invalid_packed([](FieldSpec& f) { f.packed_bytes = INT64_MAX - 15; });
  expect_invalid_packed([](FieldSpec& f) { f.num_pixels = 0; });
  expect_invalid_packed([](FieldSpec& f) { f.smallest.width = 0; });
  expect_invalid_packed([](FieldSpec& f) { f.largest.height = 1 << 25; });
  expect_invalid_packed([](FieldSpec& f) { f.shape[1] = 4; });
  expect_invalid([](CacheHeader& h) { h.num_samples = 0; }, "no samples");
  expect_invalid([](CacheHeader& h) { h.num_samples = -1; }, "no samples");
  expect_invalid([](CacheHeader& h) { h.fields.clear(); }, "no samples");
  expect_invalid([](CacheHeader& h) { h.num_samples = INT64_MAX; }, "image");
  expect_invalid([](CacheHeader& h) { h.fields[1].shape = {-1}; }, "label");
  expect_invalid(
      [](CacheHeader& h) {
        h.fields[1].shape = {int64_t{1} << 40, int64_t{1} << 40};
      },
      "label");
  expect_invalid([](CacheHeader& h) { h.fields[1].dtype = Dtype{99}; },
                 "label");
  expect_invalid([](CacheHeader& h) { h.num_samples = int64_t{1} << 38; },
                 "header is too large");
  expect_invalid([](CacheHeader& h) { h.spec_id = "../../etc/passwd"; }, "hex");
  expect_invalid(
      [](CacheHeader& h) { h.class_names.assign(1, std::string(70000, 'a')); },
      "class name");
}

}  // namespace
}  // namespace datasetd
