#include "server/readers/hdf5/worker_sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

constexpr int kRefused = 60;

// How a child ends that does this: "signal 31", "exit 0".
std::string EndOf(const std::function<void()>& deed) {
  const pid_t child = fork();
  if (child == 0) {
    deed();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                             : absl::StrCat("exit ", WEXITSTATUS(status));
}

std::string EndInSandbox(const std::function<void()>& deed) {
  return EndOf([&deed] {
    if (!EnterSandbox().ok()) _exit(kRefused);
    deed();
  });
}

const std::string kKilled = absl::StrCat("signal ", SIGSYS);

TEST(WorkerSandboxTest, MemoryTimeAndTheStandardDescriptorsRemain) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(write(ends[1], "hello", 5), 5);
  EXPECT_EQ(EndInSandbox([] {}), "exit 0");
  EXPECT_EQ(EndOf([&] {
              dup2(ends[0], STDIN_FILENO);
              if (!EnterSandbox().ok()) _exit(kRefused);
              char text[2];
              if (read(STDIN_FILENO, text, 2) != 2) _exit(1);
              if (recv(STDIN_FILENO, text, 2, 0) != 2) _exit(2);
              if (send(STDIN_FILENO, "x", 1, MSG_NOSIGNAL) != 1) _exit(3);
              std::string block(64 << 20, 'x');
              block.resize(128 << 20, 'y');
              void* const pages = malloc(100 << 20);
              memset(pages, 1, 100 << 20);
              free(realloc(pages, 200 << 20));
              timespec now;
              if (clock_gettime(CLOCK_REALTIME, &now) != 0) _exit(4);
              if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now) != 0) {
                _exit(5);
              }
            }),
            "exit 0");
  close(ends[0]);
  close(ends[1]);
}

TEST(WorkerSandboxTest, AllElseEndsTheProcess) {
  struct Deed {
    const char* name;
    std::function<void()> run;
  };
  int other[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
  const pid_t parent = getpid();
  const Deed deeds[] = {
    {"open", [] { open("/etc/hostname", O_RDONLY); }},
    {"stat",
     [] {
       struct stat status;
       stat("/", &status);
     }},
    {"socket", [] { socket(AF_UNIX, SOCK_SEQPACKET, 0); }},
    {"connect",
     [&] {
       sockaddr_un name = {};
       name.sun_family = AF_UNIX;
       connect(other[0], reinterpret_cast<sockaddr*>(&name), sizeof(name));
     }},
    {"read another descriptor",
     [&] {
       char byte;
       [[maybe_unused]] auto n = read(other[0], &byte, 1);
     }},
    {"write to another descriptor",
     [&] { [[maybe_unused]] auto n = write(other[0], "x", 1); }},
    {"pass a descriptor", [] { sendmsg(0, nullptr, 0); }},
    {"receive one", [] { recvmsg(0, nullptr, 0); }},
    {"dup", [] { [[maybe_unused]] const int fd = dup(0); }},
    {"ptrace", [&] { ptrace(PTRACE_ATTACH, parent, nullptr, nullptr); }},
    {"read memory",
     [&] { process_vm_readv(parent, nullptr, 0, nullptr, 0, 0); }},
    {"write memory",
     [&] { process_vm_writev(parent, nullptr, 0, nullptr, 0, 0); }},
    {"pidfd", [&] { syscall(SYS_pidfd_open, parent, 0); }},
    {"kill", [&] { kill(parent, 0); }},
    {"execve", [] { execl("/bin/true", "true", nullptr); }},
    {"fork", [] { fork(); }},
    {"prctl", [] { prctl(PR_SET_DUMPABLE, 1); }},
    {"memfd", [] { memfd_create("x", 0); }},
    {"executable memory",
     [] {
       mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
            -1, 0);
     }},
    {"memory made executable",
     [] {
       void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       mprotect(page, 4096, PROT_READ | PROT_EXEC);
     }},
    {"no call", [] { syscall(100'000); }},
#if defined(__x86_64__)
    // Of the x32 interface.
    {"x32", [] { syscall(0x40000000 + SYS_brk, 0); }},
#endif
  };
  for (const Deed& deed : deeds) {
    EXPECT_EQ(EndInSandbox(deed.run), kKilled) << deed.name;
  }
  close(other[0]);
  close(other[1]);
}

TEST(WorkerSandboxTest, NobodyOfItsUserLooksIntoIt) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    close(ends[1]);
    // What belongs to no user cannot be told of root's.
    if (getuid() == 0 && setuid(65534) != 0) _exit(1);
    if (prctl(PR_SET_DUMPABLE, 1) != 0 || !EnterSandbox().ok()) _exit(kRefused);
    send(STDIN_FILENO, "x", 1, MSG_NOSIGNAL);
    char byte;
    recv(STDIN_FILENO, &byte, 1, 0);
    _exit(0);
  }
  close(ends[0]);
  char byte;
  ASSERT_EQ(read(ends[1], &byte, 1), 1);
  struct stat status = {};
  ASSERT_EQ(stat(absl::StrCat("/proc/", child, "/mem").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 0u);
  close(ends[1]);
  int end = 0;
  waitpid(child, &end, 0);
  EXPECT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 0) << end;
}

TEST(WorkerSandboxTest, LandlockAloneDeniesFiles) {
  if (EndOf([] { _exit(DenyAllFiles() ? 0 : 1); }) != "exit 0") {
    GTEST_SKIP() << "this kernel has no Landlock";
  }
  EXPECT_EQ(EndOf([] {
              DenyAllFiles();
              if (open("/etc/hostname", O_RDONLY) >= 0 || errno != EACCES) {
                _exit(1);
              }
              if (open("/", O_RDONLY | O_DIRECTORY) >= 0 || errno != EACCES) {
                _exit(2);
              }
              if (mkdir("/tmp/of_the_sandbox", 0700) == 0) _exit(3);
            }),
            "exit 0");
}

}  // namespace
}  // namespace datasetd
