#include "tests/emulated_gpu/driver/in_process.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gtest/gtest.h"

namespace datasetd::emulated_driver {
namespace {

void SetEnvironment(const Environment& environment) {
  setenv("DATASETD_EMULATED_GPU_MAX_DELAY_US", "0", 1);
  for (const auto& [name, value] : environment) {
    const std::string full =
        name == "CUDA_VISIBLE_DEVICES" ? name : "DATASETD_EMULATED_GPU_" + name;
    setenv(full.c_str(), value.c_str(), 1);
  }
}

void Check(bool condition, const char* what) {
  if (condition) return;
  perror(what);
  abort();
}

}  // namespace

Process::Process(const Environment& environment, std::function<void()> body) {
  fflush(stdout);
  pid_ = fork();
  Check(pid_ >= 0, "fork");
  if (pid_ != 0) return;
  SetEnvironment(environment);
  body();
  // Runs the destructors of the driver.
  exit(::testing::Test::HasFailure() ? 1 : 0);
}

Process::~Process() {
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
  if (is_killed_) return;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "wait status " << status;
}

void Process::Kill() {
  is_killed_ = true;
  EXPECT_EQ(kill(pid_, SIGKILL), 0);
  siginfo_t info;
  EXPECT_EQ(waitid(P_PID, pid_, &info, WEXITED | WNOWAIT), 0);
}

Channel::Channel() {
  Check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) == 0,
        "socketpair");
}

Channel::~Channel() {
  close(ends_[0]);
  close(ends_[1]);
}

void Channel::Send(int end, const void* bytes, size_t size_bytes) const {
  Check(send(ends_[end], bytes, size_bytes, MSG_NOSIGNAL) ==
            static_cast<ssize_t>(size_bytes),
        "send");
}

void Channel::Receive(int end, void* bytes, size_t size_bytes) const {
  Check(recv(ends_[end], bytes, size_bytes, MSG_WAITALL) ==
            static_cast<ssize_t>(size_bytes),
        "recv");
}

void Channel::SendDescriptor(int end, int fd) const {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  Check(sendmsg(ends_[end], &message, 0) == 1, "sendmsg");
}

int Channel::ReceiveDescriptor(int end) const {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  Check(recvmsg(ends_[end], &message, MSG_CMSG_CLOEXEC) == 1, "recvmsg");
  int fd = -1;
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  return fd;
}

}  // namespace datasetd::emulated_driver
