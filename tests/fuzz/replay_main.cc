// Replays every file of the folder argv[1], and damaged copies of it. A harness
// aborts where it finds a fault.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutationsPerFile = 200;

std::string corpus;

void Handle(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()),
                         input.size());
}

std::string Mutate(std::string input, std::mt19937_64* random) {
  if (input.empty()) return "\xff";
  switch ((*random)() % 3) {
    case 0:
      input.resize((*random)() % input.size());
      break;
    case 1:
      input.insert((*random)() % input.size(), 1,
                   static_cast<char>((*random)()));
      break;
    default:
      input[(*random)() % input.size()] ^=
          static_cast<char>(1 << (*random)() % 8);
  }
  return input;
}

TEST(FuzzReplayTest, EveryInputOfTheCorpusIsHandled) {
  std::mt19937_64 random(1);
  int num_files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(corpus)) {
    if (!entry.is_regular_file()) continue;
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input(std::istreambuf_iterator<char>(file), {});
    ASSERT_TRUE(file.good() || file.eof());
    ++num_files;
    Handle(input);
    for (int i = 0; i < kMutationsPerFile; ++i) Handle(Mutate(input, &random));
  }
  EXPECT_GT(num_files, 0) << corpus << " is empty";
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  corpus = argv[1];
  return RUN_ALL_TESTS();
}
