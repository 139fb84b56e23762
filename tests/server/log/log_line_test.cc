#include "server/log/log_line.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/log/log_fields.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {
namespace {

std::string Format(bool for_journal, spdlog::level::level_enum level,
                   const std::string& text) {
  spdlog::details::log_msg message("attach", level, text);
  message.time = std::chrono::system_clock::from_time_t(1706702400) +
                 std::chrono::milliseconds(7);
  return FormatLogLine(message, for_journal);
}

std::string Format(const std::string& text, const LogFields& fields) {
  return FormatJournalEntry(
      spdlog::details::log_msg("attach", spdlog::level::err, text), fields);
}

TEST(LogLineTest, WritesTimeLevelAndSubsystem) {
  EXPECT_EQ(Format(false, spdlog::level::info, "x"),
            "2024-01-31T12:00:00.007Z info [attach] x\n");
  EXPECT_EQ(Format(false, spdlog::level::err, "x"),
            "2024-01-31T12:00:00.007Z error [attach] x\n");
}

TEST(LogLineTest, WritesThePriorityForTheJournal) {
  EXPECT_EQ(Format(true, spdlog::level::critical, "x"), "<2>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::err, "x"), "<3>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::warn, "x"), "<4>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::info, "x"), "<6>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::debug, "x"), "<7>[attach] x\n");
  EXPECT_EQ(Format(true, spdlog::level::trace, "x"), "<7>[attach] x\n");
}

TEST(LogLineTest, AMessageCannotForgeALineOrATerminalCommand) {
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

TEST(JournalEntryTest, HasTheFieldsThatAreSet) {
  EXPECT_EQ(Format("x", {}),
            "MESSAGE=[attach] x\nPRIORITY=3\nSYSLOG_IDENTIFIER=datasetd\n"
            "SUBSYSTEM=attach\n");
  EXPECT_EQ(Format("x", {.feed = 0, .uid = 0}),
            "MESSAGE=[attach] x\nPRIORITY=3\nSYSLOG_IDENTIFIER=datasetd\n"
            "SUBSYSTEM=attach\nFEED=0\nUID=0\n");
  EXPECT_EQ(Format("x", {.dataset = "d", .pid = 42}),
            "MESSAGE=[attach] x\nPRIORITY=3\nSYSLOG_IDENTIFIER=datasetd\n"
            "SUBSYSTEM=attach\nDATASET=d\nPID=42\n");
}

TEST(JournalEntryTest, NoTextForgesAField) {
  EXPECT_EQ(Format("a\nUID=0", {.dataset = "d\nPRIORITY=0\n"}),
            "MESSAGE=[attach] a\\nUID=0\nPRIORITY=3\n"
            "SYSLOG_IDENTIFIER=datasetd\nSUBSYSTEM=attach\n"
            "DATASET=d\\nPRIORITY=0\\n\n");
  EXPECT_EQ(Format("\xc2\x9b", {.dataset = "\xe2\x80\xa8"}),
            "MESSAGE=[attach] \\xc2\\x9b\nPRIORITY=3\n"
            "SYSLOG_IDENTIFIER=datasetd\nSUBSYSTEM=attach\n"
            "DATASET=\\xe2\\x80\\xa8\n");
}

}  // namespace
}  // namespace datasetd
