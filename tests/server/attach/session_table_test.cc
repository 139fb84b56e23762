#include "server/attach/session_table.h"

#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const SessionToken& token) {
  return std::string(token.begin(), token.end());
}

TEST(SessionTableTest, ATokenIsGoodWhileItsSessionLives) {
  SessionTable sessions(10, 0);
  const auto alice = sessions.Open(1000, 10);
  const auto bob = sessions.Open(1001, 20, 7);
  ASSERT_THAT(alice, IsOk());
  ASSERT_THAT(bob, IsOk());
  EXPECT_NE(alice->token, bob->token);
  const auto caller = sessions.Find(Text(bob->token));
  ASSERT_THAT(caller, IsOk());
  EXPECT_EQ(caller->uid, 1001);
  EXPECT_EQ(caller->pid, 20);
  EXPECT_EQ(caller->own_pid, 7);
  EXPECT_EQ(caller->session_id, bob->session_id);

  EXPECT_EQ(sessions.num_opened(), 2u);
  sessions.Close(bob->token);
  EXPECT_EQ(sessions.num_sessions(), 1u);
  EXPECT_EQ(sessions.num_opened(), 2u);
  EXPECT_THAT(sessions.Find(Text(bob->token)),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(sessions.Find(Text(alice->token)), IsOk());
}

TEST(SessionTableTest, WhatIsNoTokenIsRefused) {
  SessionTable sessions(10, 0);
  const auto opened = sessions.Open(1000, 10);
  ASSERT_THAT(opened, IsOk());
  std::string token = Text(opened->token);
  for (const std::string& wrong :
       {std::string(), std::string(16, '\0'), token.substr(1), token + "x"}) {
    EXPECT_THAT(sessions.Find(wrong),
                StatusIs(absl::StatusCode::kUnauthenticated,
                         HasSubstr("no live session has this token")));
  }
  token[15] ^= 1;
  EXPECT_THAT(sessions.Find(token),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST(SessionTableTest, AConnectionIsItsSessionsUntilThatIsClosed) {
  SessionTable sessions(10, 0);
  const auto alice = sessions.Open(1000, 10);
  const auto bob = sessions.Open(1001, 20);
  ASSERT_THAT(alice, IsOk());
  ASSERT_THAT(bob, IsOk());
  EXPECT_THAT(sessions.OfConnection("fd:7"),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       HasSubstr("the session of this call has ended")));
  sessions.SetConnection(alice->session_id, 7);
  sessions.SetConnection(bob->session_id, 8);
  EXPECT_EQ(sessions.OfConnection("fd:7")->uid, 1000);
  EXPECT_EQ(sessions.OfConnection("fd:8")->uid, 1001);
  for (const char* const peer : {"", "fd:", "fd:x", "7", "unix:", "fd:9"}) {
    EXPECT_THAT(sessions.OfConnection(peer),
                StatusIs(absl::StatusCode::kUnauthenticated));
  }
  // gRPC closed Bob's connection before he is: its number is Alice's next.
  const auto next = sessions.Open(1000, 11);
  sessions.SetConnection(next->session_id, 8);
  sessions.Close(bob->token);
  EXPECT_EQ(sessions.OfConnection("fd:8")->session_id, next->session_id);
  sessions.Close(next->token);
  EXPECT_THAT(sessions.OfConnection("fd:8"),
              StatusIs(absl::StatusCode::kUnauthenticated));
  // Of a session that has ended meanwhile.
  sessions.SetConnection(next->session_id, 7);
  EXPECT_THAT(sessions.OfConnection("fd:7"),
              StatusIs(absl::StatusCode::kUnauthenticated));
}

TEST(SessionTableTest, RootAndTheDaemonsUserArePrivileged) {
  SessionTable sessions(10, 0);
  const auto root = sessions.Open(0, 1);
  const auto self = sessions.Open(getuid(), 2);
  const auto other = sessions.Open(getuid() + 4711, 3);
  EXPECT_TRUE(sessions.Find(Text(root->token))->is_privileged);
  EXPECT_TRUE(sessions.Find(Text(self->token))->is_privileged);
  EXPECT_FALSE(sessions.Find(Text(other->token))->is_privileged);
}

TEST(SessionTableTest, LimitsNameTheirKeys) {
  SessionTable sessions(3, 2);
  const auto first = sessions.Open(1000, 10);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(sessions.Open(1000, 11), IsOk());
  EXPECT_THAT(sessions.Open(1000, 12),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("uid 1000"),
                             HasSubstr("user_limits.max_sessions"))));
  ASSERT_THAT(sessions.Open(1001, 20), IsOk());
  EXPECT_THAT(sessions.Open(1002, 30),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("'max_sessions'")));
  sessions.Close(first->token);
  EXPECT_THAT(sessions.Open(1002, 30), IsOk());
  EXPECT_EQ(sessions.num_sessions(), 3);
}

TEST(SessionTableTest, AnEmptyTableCanBeClosed) {
  SessionTable sessions(3, 2);
  const auto first = sessions.Open(1000, 10);
  ASSERT_THAT(first, IsOk());
  EXPECT_FALSE(sessions.CloseIfEmpty());
  ASSERT_THAT(sessions.Open(1001, 11), IsOk());
  EXPECT_FALSE(sessions.CloseIfEmpty());
  sessions.Close(first->token);
  EXPECT_FALSE(sessions.CloseIfEmpty());
  SessionTable empty(3, 2);
  EXPECT_TRUE(empty.CloseIfEmpty());
  EXPECT_THAT(empty.Open(1000, 10), StatusIs(absl::StatusCode::kUnavailable,
                                             HasSubstr("shutting down")));
  empty.Reopen();
  EXPECT_THAT(empty.Open(1000, 10), IsOk());
}

}  // namespace
}  // namespace datasetd
