#include "server/readers/inflated_file.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/deflate.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kSize = 700'001;

// Text that deflate makes smaller, and no two places of it alike.
std::string Text() {
  std::mt19937 random(3);
  std::string text(kSize, ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 20);
  return text;
}

class InflatedFileTest : public ::testing::TestWithParam<int> {
 protected:
  InflatedFileTest() : text_(Text()) {
    files_.Write("/t", Deflate(text_, GetParam()));
    auto file = files_.Open("/t");
    const auto size = InflatedBytes(**file, kSize);
    EXPECT_EQ(*size, static_cast<int64_t>(kSize));
    file_ = OpenInflatedFile(*std::move(file), *size);
  }
  std::string Read(int64_t offset, size_t size) const {
    std::string bytes(size, '\0');
    const auto count = file_->ReadAt(
        offset, absl::MakeSpan(reinterpret_cast<uint8_t*>(bytes.data()), size));
    EXPECT_THAT(count, IsOk());
    bytes.resize(static_cast<size_t>(*count));
    return bytes;
  }

  const std::string text_;
  MemoryFileSystem files_;
  std::shared_ptr<const RandomAccessFile> file_;
};

INSTANTIATE_TEST_SUITE_P(GzipAndZlib, InflatedFileTest,
                         ::testing::Values(kGzip, kZlib));

TEST_P(InflatedFileTest, AnyBytesAreThoseOfTheText) {
  EXPECT_EQ(file_->info().size_bytes, static_cast<int64_t>(kSize));
  EXPECT_EQ(file_->info().path, "/t");
  EXPECT_EQ(Read(0, 0), "");
  EXPECT_EQ(Read(0, kSize), text_);
  EXPECT_EQ(Read(kSize - 3, 10), text_.substr(kSize - 3));
  EXPECT_EQ(Read(kSize, 10), "");
  EXPECT_EQ(Read(int64_t{1} << 40, 10), "");
  std::mt19937 random(5);
  for (int i = 0; i < 100; ++i) {
    const size_t offset = random() % kSize;
    const size_t size = random() % 3000;
    EXPECT_EQ(Read(static_cast<int64_t>(offset), size),
              text_.substr(offset, size))
        << offset;
  }
}

// As the threads of a load: each takes the next piece.
TEST_P(InflatedFileTest, ThreadsThatGoForwardReadAtOnce) {
  constexpr size_t kPiece = 997;
  std::atomic<size_t> next = 0;
  std::atomic<int> num_wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (true) {
        const size_t offset = next.fetch_add(kPiece);
        if (offset >= kSize) return;
        if (Read(static_cast<int64_t>(offset), kPiece) !=
            text_.substr(offset, kPiece)) {
          num_wrong.fetch_add(1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong.load(), 0);
}

TEST_P(InflatedFileTest, DamageIsNamedByEveryReadOfIt) {
  std::string packed = files_.contents().at("/t");
  // A file that was changed after it was looked at.
  packed.resize(packed.size() / 2);
  files_.Write("/t", packed);
  EXPECT_EQ(Read(100, 50), text_.substr(100, 50));
  for (int i = 0; i < 2; ++i) {
    uint8_t byte = 0;
    EXPECT_THAT(file_->ReadAt(kSize - 1, absl::MakeSpan(&byte, 1)),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("/t: gzip data ends early")));
  }
  const auto file = files_.Open("/t");
  EXPECT_THAT(InflatedBytes(**file, std::numeric_limits<int64_t>::max()),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("/t: gzip data ends early")));
}

TEST_P(InflatedFileTest, MoreThanItMayIsRefused) {
  const auto file = files_.Open("/t");
  EXPECT_THAT(InflatedBytes(**file, kSize - 1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("inflate to more than 700000")));
  EXPECT_THAT(
      InflatedBytes(**file, 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/t: its ")));
}

}  // namespace
}  // namespace datasetd::testing
