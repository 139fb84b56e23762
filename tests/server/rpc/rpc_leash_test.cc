#include "server/rpc/rpc_leash.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/http2_scanner.h"

namespace datasetd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;

using Type = Http2FrameType;

std::string Frame(Type type, uint8_t flags, uint32_t stream_id,
                  uint32_t size_bytes) {
  std::string frame;
  for (const uint32_t byte :
       {size_bytes >> 16, size_bytes >> 8, size_bytes,
        static_cast<uint32_t>(type), uint32_t{flags}, stream_id >> 24,
        stream_id >> 16, stream_id >> 8, stream_id}) {
    frame.push_back(static_cast<char>(byte));
  }
  return frame + std::string(size_bytes, 'x');
}

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(Http2ScannerTest, FindsFramesInPiecesOfAnySize) {
  const std::string sent =
      std::string(kHttp2Preface) + Frame(Type::kSettings, 0, 0, 12) +
      Frame(Type::kHeaders, 5, 0x01020305, 70000) + Frame(Type::kPing, 0, 0, 8);
  for (const size_t piece : {1, 2, 7, 9, 100, 1 << 20}) {
    Http2Scanner scanner(/*has_preface=*/true);
    std::vector<Http2Frame> frames;
    for (size_t i = 0; i < sent.size(); i += piece) {
      EXPECT_TRUE(scanner.Scan(Bytes(sent.substr(i, piece)),
                               [&](const Http2Frame& frame) {
                                 frames.push_back(frame);
                                 return true;
                               }));
    }
    EXPECT_TRUE(scanner.is_at_boundary());
    ASSERT_EQ(frames.size(), 3);
    EXPECT_EQ(frames[1].stream_id, 0x01020305);
    EXPECT_EQ(frames[1].size_bytes, 70000);
    EXPECT_EQ(frames[1].flags, 5);
    EXPECT_TRUE(frames[1].IsEndOfStream());
    EXPECT_TRUE(frames[2].Is(Type::kPing));
    EXPECT_FALSE(frames[2].IsEndOfStream());
  }
}

TEST(Http2ScannerTest, KnowsThatAFrameIsNotComplete) {
  Http2Scanner scanner(/*has_preface=*/false);
  const std::string frame = Frame(Type::kData, 0, 1, 10);
  const auto go_on = [](const Http2Frame&) { return true; };
  EXPECT_TRUE(scanner.Scan(Bytes(frame.substr(0, 5)), go_on));
  EXPECT_FALSE(scanner.is_at_boundary());
  EXPECT_TRUE(scanner.Scan(Bytes(frame.substr(5, 10)), go_on));
  EXPECT_FALSE(scanner.is_at_boundary());
  EXPECT_TRUE(scanner.Scan(Bytes(frame.substr(15)), go_on));
  EXPECT_TRUE(scanner.is_at_boundary());
}

class RpcLeashTest : public ::testing::Test {
 protected:
  RpcLeashTest() { EXPECT_THAT(Send(std::string(kHttp2Preface)), IsNull()); }

  const char* Send(const std::string& bytes) {
    return leash_.CheckToServer(Bytes(bytes), now_);
  }
  void Answer(const std::string& bytes) { leash_.SeeToClient(Bytes(bytes)); }
  const char* Call() {
    const char* const reason =
        Send(Frame(Type::kHeaders, 4, next_id_, 20) +
             Frame(Type::kData, Http2Frame::kEndStream, next_id_, 5));
    next_id_ += 2;
    return reason;
  }
  void AnswerCall(uint32_t id) {
    Answer(Frame(Type::kHeaders, 4, id, 10) + Frame(Type::kData, 0, id, 9) +
           Frame(Type::kHeaders, Http2Frame::kEndStream, id, 5));
  }
  const char* GiveUp(uint32_t id) {
    return Send(Frame(Type::kRstStream, 0, id, 4));
  }

  absl::Duration now_ = absl::Seconds(100);
  RpcLeash leash_{now_};
  uint32_t next_id_ = 1;
};

TEST_F(RpcLeashTest, CallsThatAreWaitedForHaveNoRate) {
  for (int i = 0; i < 10000; ++i) {
    const uint32_t id = next_id_;
    ASSERT_THAT(Call(), IsNull());
    EXPECT_EQ(leash_.num_streams(), 1);
    AnswerCall(id);
    EXPECT_EQ(leash_.num_streams(), 0);
  }
  EXPECT_EQ(leash_.TakeAbandoned(), 0);
}

TEST_F(RpcLeashTest, SoManyCallsAtATime) {
  for (int i = 0; i < RpcLeash::kMaxStreams; ++i) ASSERT_THAT(Call(), IsNull());
  EXPECT_THAT(Call(), HasSubstr("at a time"));
}

TEST_F(RpcLeashTest, CallsThatAreGivenUpAreBounded) {
  int num_calls = 0;
  const char* reason = nullptr;
  while (reason == nullptr) {
    const uint32_t id = next_id_;
    ASSERT_THAT(Call(), IsNull());
    reason = GiveUp(id);
    ASSERT_LT(++num_calls, 1000);
  }
  EXPECT_THAT(reason, HasSubstr("given up"));
  EXPECT_EQ(num_calls, 65);
  EXPECT_EQ(leash_.TakeAbandoned(), num_calls);
  EXPECT_EQ(leash_.TakeAbandoned(), 0);
}

TEST_F(RpcLeashTest, OneThatIsGivenUpNowAndThenIsNoAbuse) {
  for (int i = 0; i < 1000; ++i) {
    const uint32_t id = next_id_;
    ASSERT_THAT(Call(), IsNull());
    ASSERT_THAT(GiveUp(id), IsNull());
    now_ += absl::Milliseconds(200);
  }
}

TEST_F(RpcLeashTest, AResetAfterTheAnswerGivesUpNothing) {
  for (int i = 0; i < 500; ++i) {
    const uint32_t id = next_id_;
    ASSERT_THAT(Call(), IsNull());
    AnswerCall(id);
    ASSERT_THAT(GiveUp(id), IsNull());
  }
  EXPECT_EQ(leash_.TakeAbandoned(), 0);
}

TEST_F(RpcLeashTest, FramesWithoutACallAreBounded) {
  for (const std::string& frame :
       {Frame(Type::kPing, 0, 0, 8), Frame(Type::kSettings, 0, 0, 0),
        Frame(Type::kPriority, 0, 1, 5), Frame(Type::kWindowUpdate, 0, 0, 4),
        Frame(Type::kData, 0, 1, 0), Frame(Type::kData, 1, 1, 0),
        Frame(Type::kContinuation, 0, 1, 0), Frame(Type::kRstStream, 0, 1, 4),
        Frame(Type::kHeaders, 4, 1, 5), Frame(Type{77}, 0, 0, 3)}) {
    RpcLeash leash(now_);
    std::string first =
        std::string(kHttp2Preface) + Frame(Type::kHeaders, 4, 1, 5);
    ASSERT_THAT(leash.CheckToServer(Bytes(first), now_), IsNull());
    leash.SeeToClient(Bytes(Frame(Type::kRstStream, 0, 1, 4)));
    const char* reason = nullptr;
    int num_frames = 0;
    while (reason == nullptr && num_frames < 5000) {
      reason = leash.CheckToServer(Bytes(frame), now_);
      // Answers that gRPC must send earn the client nothing.
      leash.SeeToClient(Bytes(Frame(Type::kPing, Http2Frame::kAck, 0, 8)));
      ++num_frames;
    }
    EXPECT_THAT(reason, HasSubstr("without a call"));
    EXPECT_LE(num_frames, 1010);
  }
}

TEST_F(RpcLeashTest, AClientMayAnswerWhatItIsAsked) {
  for (int i = 0; i < 5000; ++i) {
    Answer(Frame(Type::kPing, 0, 0, 8));
    ASSERT_THAT(Send(Frame(Type::kPing, Http2Frame::kAck, 0, 8)), IsNull());
  }
}

TEST_F(RpcLeashTest, LargeDataIsFree) {
  ASSERT_THAT(Send(Frame(Type::kHeaders, 4, 1, 20)), IsNull());
  for (int i = 0; i < 5000; ++i) {
    ASSERT_THAT(Send(Frame(Type::kData, 0, 1, 16384)), IsNull());
  }
  EXPECT_EQ(leash_.num_streams(), 1);
}

TEST_F(RpcLeashTest, LargeMessagesMayEndInSmallFrames) {
  ASSERT_THAT(Send(Frame(Type::kHeaders, 4, 1, 20)), IsNull());
  const std::string message =
      Frame(Type::kData, 0, 1, 16384) + Frame(Type::kData, 0, 1, 7);
  for (int i = 0; i < 5000; ++i) ASSERT_THAT(Send(message), IsNull());
  // Little data pays for few.
  const std::string small =
      Frame(Type::kData, 0, 1, 64) + Frame(Type::kData, 0, 1, 7);
  const char* reason = nullptr;
  int num_messages = 0;
  while (reason == nullptr && num_messages < 5000) {
    reason = Send(small);
    ++num_messages;
  }
  EXPECT_THAT(reason, HasSubstr("without a call"));
  EXPECT_LE(num_messages, 1010);
}

TEST_F(RpcLeashTest, MetadataIsBounded) {
  EXPECT_THAT(Send(Frame(Type::kHeaders, 0, 1, 40000)), HasSubstr("metadata"));
  RpcLeash other(now_);
  ASSERT_THAT(other.CheckToServer(Bytes(std::string(kHttp2Preface) +
                                        Frame(Type::kHeaders, 0, 1, 16384)),
                                  now_),
              IsNull());
  const std::string more = Frame(Type::kContinuation, 0, 1, 16384);
  EXPECT_THAT(other.CheckToServer(Bytes(more), now_), IsNull());
  EXPECT_THAT(other.CheckToServer(Bytes(more), now_), HasSubstr("metadata"));
}

TEST_F(RpcLeashTest, KnowsSinceWhenAFrameIsIncomplete) {
  EXPECT_EQ(leash_.partial_since(), absl::InfiniteDuration());
  const std::string call = Frame(Type::kHeaders, 4, 1, 20);
  ASSERT_THAT(Send(call.substr(0, 12)), IsNull());
  const absl::Duration begun = now_;
  now_ += absl::Seconds(3);
  ASSERT_THAT(Send(call.substr(12, 1)), IsNull());
  EXPECT_EQ(leash_.partial_since(), begun);
  ASSERT_THAT(Send(call.substr(13)), IsNull());
  EXPECT_EQ(leash_.partial_since(), absl::InfiniteDuration());
  // Data of a call may take its time.
  ASSERT_THAT(Send(Frame(Type::kData, 0, 1, 100).substr(0, 50)), IsNull());
  EXPECT_EQ(leash_.partial_since(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace datasetd
