#include "server/log/journal_entry.h"

#include <string>

#include "gtest/gtest.h"
#include "server/log/log_fields.h"
#include "spdlog/details/log_msg.h"

namespace datasetd {
namespace {

std::string Format(const std::string& text, const LogFields& fields) {
  return FormatJournalEntry(
      spdlog::details::log_msg("attach", spdlog::level::err, text), fields);
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
