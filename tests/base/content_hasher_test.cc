#include "base/content_hasher.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/digest.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

constexpr size_t kSize = 3 * kContentLeafBytes + 12345;

std::vector<uint8_t> Bytes(size_t size, uint32_t state = 1) {
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

// As the header describes it.
std::string Reference(const std::vector<uint8_t>& bytes) {
  std::string leaves;
  for (size_t begin = 0; begin < bytes.size(); begin += kContentLeafBytes) {
    DigestHasher leaf;
    leaf.Update(absl::MakeConstSpan(bytes).subspan(begin, kContentLeafBytes));
    const Digest digest = leaf.Finish();
    leaves.append(digest.begin(), digest.end());
  }
  for (int i = 0; i < 8; ++i) {
    leaves.push_back(static_cast<char>(uint64_t{bytes.size()} >> (8 * i)));
  }
  return HexDigest(leaves);
}

std::string DigestOf(const std::vector<uint8_t>& bytes, int num_threads,
                     size_t piece_bytes) {
  ContentHasher hasher(1, num_threads);
  for (size_t begin = 0; begin < bytes.size(); begin += piece_bytes) {
    hasher.Add(0, absl::MakeConstSpan(bytes).subspan(begin, piece_bytes));
  }
  return ToHex(hasher.Finish(0));
}

TEST(ContentHasherTest, ADigestDependsOnTheBytesAlone) {
  const std::vector<uint8_t> bytes = Bytes(kSize);
  const std::string expected = Reference(bytes);
  for (const int num_threads : {1, 2, 5}) {
    for (const size_t piece_bytes :
         {size_t{4096}, size_t{77777}, kContentLeafBytes, kContentLeafBytes + 1,
          kSize}) {
      EXPECT_EQ(DigestOf(bytes, num_threads, piece_bytes), expected)
          << num_threads << " threads, pieces of " << piece_bytes;
    }
  }
}

TEST(ContentHasherTest, EverySizeAndEveryLeafCounts) {
  std::vector<uint8_t> bytes = Bytes(kSize);
  const std::string whole = DigestOf(bytes, 2, kSize);
  for (size_t leaf = 0; leaf < 4; ++leaf) {
    bytes[leaf * kContentLeafBytes] ^= 1;
    EXPECT_NE(DigestOf(bytes, 2, kSize), whole) << leaf;
    bytes[leaf * kContentLeafBytes] ^= 1;
  }
  bytes.pop_back();
  EXPECT_NE(DigestOf(bytes, 2, kSize), whole);
  const std::vector<uint8_t> leaf = Bytes(kContentLeafBytes);
  EXPECT_EQ(DigestOf(leaf, 2, 1000), Reference(leaf));
  EXPECT_EQ(DigestOf({7}, 2, 1), Reference({7}));
}

TEST(ContentHasherTest, DataMayChangeWhenItIsAwaited) {
  const std::vector<uint8_t> bytes = Bytes(kSize);
  std::vector<uint8_t> buffers[2];
  ContentHasher::Ticket tickets[2] = {};
  ContentHasher hasher(1, 3);
  size_t turn = 0;
  for (size_t begin = 0; begin < bytes.size(); begin += 300'000, ++turn) {
    std::vector<uint8_t>& buffer = buffers[turn % 2];
    hasher.Await(tickets[turn % 2]);
    const size_t size = std::min<size_t>(300'000, bytes.size() - begin);
    buffer.assign(bytes.begin() + begin, bytes.begin() + begin + size);
    tickets[turn % 2] = hasher.Add(0, buffer);
  }
  EXPECT_EQ(ToHex(hasher.Finish(0)), Reference(bytes));
}

TEST(ContentHasherTest, FieldsAreApart) {
  const std::vector<uint8_t> first = Bytes(kSize, 1);
  const std::vector<uint8_t> second = Bytes(100, 2);
  ContentHasher hasher(2, 2);
  const absl::Span<const uint8_t> span(first);
  hasher.Add(0, span.subspan(0, 5000));
  hasher.Add(1, second);
  hasher.Add(0, span.subspan(5000));
  EXPECT_EQ(ToHex(hasher.Finish(0)), Reference(first));
  EXPECT_EQ(ToHex(hasher.Finish(1)), Reference(second));
}

TEST(ContentHasherTest, EndsInTheMiddle) {
  const std::vector<uint8_t> bytes = Bytes(kSize);
  ContentHasher hasher(1, 2);
  hasher.Add(0, bytes);
}

}  // namespace
}  // namespace datasetd
