#include "server/rpc/rpc_relay.h"

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "gtest/gtest.h"
#include "server/rpc/http2_scanner.h"

namespace datasetd {
namespace {

using Result = RpcRelay::Result;
using Side = RpcRelay::Side;

std::pair<FileDescriptor, FileDescriptor> SocketPair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
      0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// gRPC closes its end while a part of the client's bytes waits for room in it:
// sending them fails, and gRPC's last words still arrive.
TEST(RpcRelayTest, WhatGrpcSentBeforeItClosedArrives) {
  auto [client, relay_client] = SocketPair();
  auto [server, relay_server] = SocketPair();
  // A frame of data, of which a turn's bytes do not fit.
  const int size = 1;  // the least that the system has
  ASSERT_EQ(setsockopt(relay_server.get(), SOL_SOCKET, SO_SNDBUF, &size,
                       sizeof(size)),
            0);
  const std::string sent = std::string(kHttp2Preface) +
                           std::string("\0\xff\xff\0\0\0\0\0\x01", 9) +
                           std::string(0xffff, 'd');
  ASSERT_EQ(send(client.get(), sent.data(), sent.size(), 0),
            static_cast<ssize_t>(sent.size()));
  RpcRelay relay(std::move(relay_client), /*uid=*/1000, /*pid=*/1,
                 absl::ZeroDuration());
  relay.Connect(std::move(relay_server));
  std::vector<uint8_t> buffer(64 << 10);
  const auto move = [&](Side from) {
    return relay.Move(from, /*max_calls=*/1, absl::MakeSpan(buffer),
                      absl::ZeroDuration());
  };
  EXPECT_EQ(move(Side::kClient), Result::kBlocked);
  ASSERT_EQ(send(server.get(), "last words", 10, 0), 10);
  server.Reset();

  EXPECT_EQ(move(Side::kClient), Result::kIdle);
  EXPECT_EQ(move(Side::kServer), Result::kMore);
  char received[100];
  EXPECT_EQ(recv(client.get(), received, sizeof(received), 0), 10);
  EXPECT_EQ(std::string(received, 10), "last words");
  EXPECT_EQ(move(Side::kServer), Result::kGrpcClosed);
}

}  // namespace
}  // namespace datasetd
