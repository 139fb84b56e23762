#include "server/attach/attach_server.h"

#include <fcntl.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

// A file cannot be watched by epoll, as nothing can when its table is full.
TEST(AttachServerTest, WhatCannotBeWatchedIsAnErrorOfStart) {
  const auto server = AttachServer::Start(
      FileDescriptor(open("/proc/self/exe", O_RDONLY)),
      /*sessions=*/nullptr, /*gate=*/nullptr,
      /*feeds=*/nullptr, /*datasets=*/nullptr, /*observer=*/nullptr,
      /*on_tick=*/nullptr);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(server.status().message(),
              ::testing::HasSubstr("attach: epoll_ctl"));
}

}  // namespace
}  // namespace datasetd
