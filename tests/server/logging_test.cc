#include "server/logging.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class LoggingTest : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("JOURNAL_STREAM"); }

  // What `act` writes to stderr.
  template <typename Act>
  static std::string Capture(Act act) {
    ::testing::internal::CaptureStderr();
    act();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LoggingTest, EverySubsystemLogsUnderItsName) {
  ASSERT_TRUE(InitLogging("info", {}).ok());
  EXPECT_THAT(LogSubsystemNames(),
              ElementsAre("server", "service", "attach", "producer", "load"));
  for (const std::string& name : LogSubsystemNames()) {
    const auto subsystem = LogSubsystemOf(name);
    ASSERT_TRUE(subsystem.ok());
    EXPECT_THAT(Capture([&] { Log(*subsystem).info("{} of {}", 1, 2); }),
                EndsWith(absl::StrCat("Z info [", name, "] 1 of 2\n")));
  }
}

TEST_F(LoggingTest, LevelsAreBySubsystem) {
  ASSERT_TRUE(InitLogging("warn", {{"attach", "debug"}, {"load", "off"}}).ok());
  EXPECT_EQ(Capture([] { Log(LogSubsystem::kServer).info("x"); }), "");
  EXPECT_NE(Capture([] { Log(LogSubsystem::kServer).warn("x"); }), "");
  EXPECT_NE(Capture([] { Log(LogSubsystem::kAttach).debug("x"); }), "");
  EXPECT_EQ(Capture([] { Log(LogSubsystem::kAttach).trace("x"); }), "");
  EXPECT_EQ(Capture([] { Log(LogSubsystem::kLoad).critical("x"); }), "");
}

TEST_F(LoggingTest, ALevelChangesAtRunTime) {
  ASSERT_TRUE(InitLogging("info", {}).ok());
  EXPECT_EQ(Capture([] { Log(LogSubsystem::kProducer).trace("x"); }), "");
  ASSERT_TRUE(SetLogLevel("producer", "trace").ok());
  EXPECT_NE(Capture([] { Log(LogSubsystem::kProducer).trace("x"); }), "");
  EXPECT_EQ(Capture([] { Log(LogSubsystem::kService).debug("x"); }), "");
}

TEST_F(LoggingTest, UnknownNamesAreErrorsAndChangeNothing) {
  ASSERT_TRUE(InitLogging("error", {}).ok());
  for (const absl::Status& status :
       {InitLogging("loud", {}), InitLogging("info", {{"attach", "loud"}}),
        InitLogging("info", {{"net", "info"}}), SetLogLevel("net", "info"),
        SetLogLevel("server", "INFO")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("there are: "));
  }
  EXPECT_EQ(Capture([] { Log(LogSubsystem::kServer).warn("x"); }), "");
  EXPECT_NE(Capture([] { Log(LogSubsystem::kServer).error("x"); }), "");
}

TEST_F(LoggingTest, PrioritiesAreWrittenWhereStderrIsTheJournal) {
  EXPECT_EQ(Capture([] {
              struct stat status;
              ASSERT_EQ(fstat(STDERR_FILENO, &status), 0);
              setenv("JOURNAL_STREAM",
                     absl::StrCat(status.st_dev, ":", status.st_ino).c_str(),
                     1);
              ASSERT_TRUE(InitLogging("info", {}).ok());
              Log(LogSubsystem::kLoad).warn("x");
            }),
            "<4>[load] x\n");
  // Redirected away from the journal: for people again.
  setenv("JOURNAL_STREAM", "1:1", 1);
  ASSERT_TRUE(InitLogging("info", {}).ok());
  EXPECT_THAT(Capture([] { Log(LogSubsystem::kLoad).warn("x"); }),
              EndsWith("Z warn [load] x\n"));
}

}  // namespace
}  // namespace datasetd
