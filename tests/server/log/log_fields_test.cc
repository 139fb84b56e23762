#include "server/log/log_fields.h"

#include <thread>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

TEST(LogFieldsTest, AreThoseOfTheInnermostScope) {
  EXPECT_EQ(ScopedLogFields::Current().dataset, "");
  EXPECT_FALSE(ScopedLogFields::Current().uid.has_value());
  {
    const ScopedLogFields outer({.dataset = "a", .uid = 1});
    {
      const ScopedLogFields inner({.dataset = "b"});
      EXPECT_EQ(ScopedLogFields::Current().dataset, "b");
      EXPECT_FALSE(ScopedLogFields::Current().uid.has_value());
    }
    EXPECT_EQ(ScopedLogFields::Current().dataset, "a");
    EXPECT_EQ(ScopedLogFields::Current().uid, 1);
  }
  EXPECT_EQ(ScopedLogFields::Current().dataset, "");
}

TEST(LogFieldsTest, AreOfOneThread) {
  const ScopedLogFields fields({.dataset = "a"});
  std::thread([] {
    EXPECT_EQ(ScopedLogFields::Current().dataset, "");
    const ScopedLogFields own({.dataset = "b"});
    EXPECT_EQ(ScopedLogFields::Current().dataset, "b");
  }).join();
  EXPECT_EQ(ScopedLogFields::Current().dataset, "a");
}

}  // namespace
}  // namespace datasetd
