#include "client/ctl/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::ctl {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::HasSubstr;

// The wait status of `sh -c script`.
int RunShell(const std::string& script,
             ChildProcess::Options options = ChildProcess::Options()) {
  options.arguments = {"sh", "-c", script};
  const auto pid = ChildProcess::Start(options);
  EXPECT_THAT(pid.status(), IsOk());
  if (!pid.ok()) return -1;
  int status = -1;
  EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
  return status;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ChildProcessTest, EndingsAreAsShellsHaveThem) {
  const int exited = RunShell("exit 7");
  EXPECT_EQ(ExitCodeOfWaitStatus(exited), 7);
  EXPECT_EQ(DescribeWaitStatus(exited), "ended with code 7");
  const int killed = RunShell("kill -KILL $$");
  EXPECT_EQ(ExitCodeOfWaitStatus(killed), 137);
  EXPECT_EQ(DescribeWaitStatus(killed), "was killed by signal 9 (Killed)");
}

TEST(ChildProcessTest, EnvironmentIsAddedToAndReplaced) {
  ASSERT_EQ(setenv("CHILD_PROCESS_TEST_OLD", "old", 1), 0);
  ASSERT_EQ(setenv("CHILD_PROCESS_TEST_KEPT", "kept", 1), 0);
  ChildProcess::Options options;
  options.environment = {{"CHILD_PROCESS_TEST_OLD", "new=1"}};
  EXPECT_EQ(ExitCodeOfWaitStatus(
                RunShell("test \"$CHILD_PROCESS_TEST_OLD\" = new=1 &&"
                         " test \"$CHILD_PROCESS_TEST_KEPT\" = kept",
                         options)),
            0);
}

TEST(ChildProcessTest, OutputGoesToTheFileAndInputIsEmpty) {
  const TempDir directory;
  ChildProcess::Options options;
  options.output_fd = open(directory.File("log").c_str(),
                           O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  EXPECT_EQ(RunShell("cat; echo out; echo err >&2", options), 0);
  close(options.output_fd);
  EXPECT_EQ(ReadFile(directory.File("log")), "out\nerr\n");
}

TEST(ChildProcessTest, BlockedSignalsAreNotBlockedThere) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  ASSERT_EQ(sigprocmask(SIG_BLOCK, &set, &old), 0);
  const int status = RunShell("kill -USR1 $$; exit 0");
  sigprocmask(SIG_SETMASK, &old, nullptr);
  EXPECT_EQ(ExitCodeOfWaitStatus(status), 128 + SIGUSR1);
}

TEST(ChildProcessTest, MissingProgramIsNamed) {
  ChildProcess::Options options;
  options.arguments = {"/nonexistent/program"};
  EXPECT_THAT(
      ChildProcess::Start(options).status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/program")));
}

}  // namespace
}  // namespace datasetd::ctl
