#include "server/log/logging.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/log/log_fields.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class LoggingTest : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("JOURNAL_STREAM"); }

  // To be called with stderr as it is while Capture acts.
  static void MakeStderrTheJournal() {
    struct stat status;
    ASSERT_EQ(fstat(STDERR_FILENO, &status), 0);
    setenv("JOURNAL_STREAM",
           absl::StrCat(status.st_dev, ":", status.st_ino).c_str(), 1);
  }

  // Returns the text that `act` writes to stderr.
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
  ASSERT_TRUE(InitLogging("info", {{"producer", "trace"}}).ok());
  EXPECT_NE(Capture([] { Log(LogSubsystem::kProducer).trace("x"); }), "");
  EXPECT_EQ(Capture([] { Log(LogSubsystem::kService).debug("x"); }), "");
}

TEST_F(LoggingTest, UnknownNamesAreErrorsAndChangeNothing) {
  ASSERT_TRUE(InitLogging("error", {}).ok());
  for (const absl::Status& status :
       {InitLogging("loud", {}), InitLogging("info", {{"attach", "loud"}}),
        InitLogging("info", {{"net", "info"}}),
        InitLogging("info", {{"server", "INFO"}})}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("there are: ")));
  }
  EXPECT_EQ(Capture([] { Log(LogSubsystem::kServer).warn("x"); }), "");
  EXPECT_NE(Capture([] { Log(LogSubsystem::kServer).error("x"); }), "");
}

// A journal that keeps what it was sent.
class FakeJournal {
 public:
  FakeJournal() : path_(dir_.File("journal")) {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(
        bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        0);
  }
  ~FakeJournal() { close(fd_); }

  const std::string& path() const { return path_; }
  // The next entry; "" if there is none.
  std::string Take() {
    char entry[4096];
    const ssize_t size = recv(fd_, entry, sizeof(entry), 0);
    return size < 0 ? "" : std::string(entry, static_cast<size_t>(size));
  }

 private:
  testing::TempDir dir_{testing::TempDir::Place::kShortPath};
  const std::string path_;
  int fd_;
};

TEST_F(LoggingTest, TheJournalGetsFields) {
  FakeJournal journal;
  EXPECT_EQ(
      Capture([&] {
        MakeStderrTheJournal();
        ASSERT_TRUE(InitLogging("info", {}, journal.path()).ok());
        {
          const ScopedLogFields fields(
              {.dataset = "d", .feed = 7, .uid = 1000, .pid = 42});
          Log(LogSubsystem::kProducer).info("opened");
        }
        Log(LogSubsystem::kServer).warn("later");
        Log(LogSubsystem::kServer).debug("not to be told");
        ASSERT_TRUE(
            InitLogging("info", {{"server", "debug"}}, journal.path()).ok());
        Log(LogSubsystem::kServer).debug("to be told");
      }),
      "");
  EXPECT_EQ(journal.Take(),
            "MESSAGE=[producer] opened\nPRIORITY=6\n"
            "SYSLOG_IDENTIFIER=datasetd\nSUBSYSTEM=producer\n"
            "DATASET=d\nFEED=7\nUID=1000\nPID=42\n");
  EXPECT_EQ(journal.Take(),
            "MESSAGE=[server] later\nPRIORITY=4\n"
            "SYSLOG_IDENTIFIER=datasetd\nSUBSYSTEM=server\n");
  EXPECT_THAT(journal.Take(), AllOf(StartsWith("MESSAGE=[server] to be told\n"),
                                    HasSubstr("PRIORITY=7\n")));
  EXPECT_EQ(journal.Take(), "");
}

TEST_F(LoggingTest, AFullJournalDelaysNobodyAndIsToldOf) {
  constexpr int kLines = 5000;  // more than any queue of datagrams has
  FakeJournal journal;
  EXPECT_EQ(Capture([&] {
              MakeStderrTheJournal();
              ASSERT_TRUE(InitLogging("info", {}, journal.path()).ok());
              for (int i = 0; i < kLines; ++i) {
                Log(LogSubsystem::kServer).info("line");
              }
            }),
            "");
  int num_taken = 0;
  while (!journal.Take().empty()) ++num_taken;
  EXPECT_GT(num_taken, 0);
  EXPECT_LT(num_taken, kLines);
  EXPECT_EQ(Capture([&] {
              Log(LogSubsystem::kServer).info("next");
              Log(LogSubsystem::kServer).info("last");
            }),
            "");
  EXPECT_THAT(journal.Take(), StartsWith(absl::StrCat(
                                  "MESSAGE=[server] next (", kLines - num_taken,
                                  " lines before were lost: their reader "
                                  "had no room)\n")));
  EXPECT_THAT(journal.Take(), StartsWith("MESSAGE=[server] last\n"));
}

// As by Ctrl-S, or of a supervisor that stands still.
TEST_F(LoggingTest, AStderrThatNobodyReadsDelaysNobodyAndIsToldOf) {
  constexpr int kLines = 5000;  // more than any pipe has room for
  const std::string text(500, 'x');
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  const auto read_all = [&] {
    std::string all;
    char some[4096];
    for (ssize_t size; (size = read(ends[0], some, sizeof(some))) > 0;) {
      all.append(some, static_cast<size_t>(size));
    }
    return all;
  };
  const int own = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  const bool is_ready = InitLogging("info", {}).ok();
  for (int i = 0; i < kLines; ++i) Log(LogSubsystem::kServer).info(text);
  const std::string first = read_all();
  Log(LogSubsystem::kServer).info("next");
  const std::string next = read_all();
  ASSERT_EQ(dup2(own, STDERR_FILENO), STDERR_FILENO);
  for (const int fd : {own, ends[0], ends[1]}) close(fd);
  ASSERT_TRUE(is_ready);
  const auto num_lines = std::count(first.begin(), first.end(), '\n');
  EXPECT_GT(num_lines, 0);
  EXPECT_LT(num_lines, kLines);
  EXPECT_THAT(next, HasSubstr(absl::StrCat(
                        "next (", kLines - num_lines,
                        " lines before were lost: their reader had no room)")));
}

TEST_F(LoggingTest, WhatTheJournalsSocketDoesNotTakeComesByStderr) {
  FakeJournal journal;
  EXPECT_EQ(Capture([&] {
              MakeStderrTheJournal();
              ASSERT_TRUE(InitLogging("info", {}, journal.path()).ok());
              ASSERT_EQ(unlink(journal.path().c_str()), 0);
              Log(LogSubsystem::kLoad).warn("x");
              // No address is that long.
              ASSERT_TRUE(InitLogging("info", {}, std::string(200, 'a')).ok());
              Log(LogSubsystem::kLoad).error("y");
            }),
            "<4>[load] x\n<3>[load] y\n");
  EXPECT_EQ(journal.Take(), "");
}

TEST_F(LoggingTest, AStderrThatIsNotTheJournalIsForPeople) {
  FakeJournal journal;
  setenv("JOURNAL_STREAM", "1:1", 1);
  EXPECT_THAT(Capture([&] {
                ASSERT_TRUE(InitLogging("info", {}, journal.path()).ok());
                const ScopedLogFields fields({.dataset = "d"});
                Log(LogSubsystem::kLoad).warn("x");
              }),
              EndsWith("Z warn [load] x\n"));
  EXPECT_EQ(journal.Take(), "");
}

}  // namespace
}  // namespace datasetd
