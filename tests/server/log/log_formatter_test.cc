#include "server/log/log_formatter.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {
namespace {

std::string Format(bool for_journal, spdlog::level::level_enum level,
                   const std::string& text) {
  spdlog::details::log_msg message("attach", level, text);
  message.time = std::chrono::system_clock::from_time_t(1706702400) +
                 std::chrono::milliseconds(7);
  spdlog::memory_buf_t line;
  LogFormatter(for_journal).clone()->format(message, line);
  return {line.data(), line.size()};
}

TEST(LogFormatterTest, WritesTimeLevelAndSubsystem) {
  EXPECT_EQ(Format(false, spdlog::level::info, "x"),
            "2024-01-31T12:00:00.007Z info [attach] x\n");
  EXPECT_EQ(Format(false, spdlog::level::err, "x"),
            "2024-01-31T12:00:00.007Z error [attach] x\n");
}

TEST(LogFormatterTest, WritesThePriorityForTheJournal) {
  EXPECT_EQ(Format(true, spdlog::level::critical, "x"), "<2>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::err, "x"), "<3>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::warn, "x"), "<4>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::info, "x"), "<6>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::debug, "x"), "<7>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::trace, "x"), "<7>[attach] x\n");
}

TEST(LogFormatterTest, AMessageCannotForgeALineOrATerminalCommand) {
  EXPECT_EQ(Format(true, spdlog::level::info,
                   "a\n<2>[server] b\r\x1b[2J\x7f \xc3\xa4"),
            "<6>[attach] a\\n<2>[server] b\\x0d\\x1b[2J\\x7f \xc3\xa4\n");
  EXPECT_EQ(Format(false, spdlog::level::info,
                   "\xc2\x9b"
                   "31m\xe2\x80\xa8"
                   "b\xe2\x80\xae\xff"),
            "2024-01-31T12:00:00.007Z info [attach] \\xc2\\x9b31m"
            "\\xe2\\x80\\xa8"
            "b\\xe2\\x80\\xae\\xff\n");
}

}  // namespace
}  // namespace datasetd
