#include "server/readers/hdf5/worker_sandbox.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"

namespace datasetd {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name the architecture for the filter of system calls"
#endif

constexpr uint32_t kNumberOffset = offsetof(seccomp_data, nr);
constexpr uint32_t kArchitectureOffset = offsetof(seccomp_data, arch);
// Offset of an argument's lower half: both architectures are little-endian, and
// no checked value has more bits.
constexpr uint32_t ArgumentOffset(int index) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args) +
                               static_cast<size_t>(index) * sizeof(uint64_t));
}

sock_filter Load(uint32_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
}
sock_filter Return(uint32_t action) {
  return BPF_STMT(BPF_RET | BPF_K, action);
}

// Builds the program: each part decides, or passes on to the next.
class Filter {
 public:
  Filter() {
    program_ = {
        Load(kArchitectureOffset),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
        Return(SECCOMP_RET_KILL_PROCESS),
        Load(kNumberOffset),
    };
  }

  void Allow(long number) {
    program_.push_back(Is(number, 0, 1));
    program_.push_back(Return(SECCOMP_RET_ALLOW));
  }
  // Allows the call if the argument is at most `largest`.
  void AllowUpTo(long number, int argument, uint32_t largest) {
    program_.push_back(Is(number, 0, 4));
    program_.push_back(Load(ArgumentOffset(argument)));
    program_.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, largest, 1, 0));
    program_.push_back(Return(SECCOMP_RET_ALLOW));
    program_.push_back(Return(SECCOMP_RET_KILL_PROCESS));
  }
  // Allows the call if the argument has none of the bits.
  void AllowWithout(long number, int argument, uint32_t bits) {
    program_.push_back(Is(number, 0, 4));
    program_.push_back(Load(ArgumentOffset(argument)));
    program_.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0));
    program_.push_back(Return(SECCOMP_RET_ALLOW));
    program_.push_back(Return(SECCOMP_RET_KILL_PROCESS));
  }

  absl::Status Install() {
    program_.push_back(Return(SECCOMP_RET_KILL_PROCESS));
    sock_fprog program = {.len = static_cast<unsigned short>(program_.size()),
                          .filter = program_.data()};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) {
      return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrCat(
        "prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER) failed with error ", errno,
        ": the kernel needs CONFIG_SECCOMP_FILTER"));
  }

 private:
  static sock_filter Is(long number, uint8_t if_so, uint8_t if_not) {
    return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number),
                    if_so, if_not);
  }

  std::vector<sock_filter> program_;
};

// From linux/landlock.h, which older systems lack.
struct LandlockRuleset {
  uint64_t handled_access_fs;
};
constexpr uint32_t kLandlockVersion = 1;

// All file rights known to a version of Landlock.
uint64_t LandlockRights(long version) {
  const int num_rights = version >= 5   ? 16
                         : version >= 3 ? 15
                         : version >= 2 ? 14
                                        : 13;
  return (uint64_t{1} << num_rights) - 1;
}

}  // namespace

bool DenyAllFiles() {
#ifdef SYS_landlock_create_ruleset
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, kLandlockVersion);
  if (version < 1) return false;
  const LandlockRuleset ruleset = {LandlockRights(version)};
  const FileDescriptor fd(static_cast<int>(
      syscall(SYS_landlock_create_ruleset, &ruleset, sizeof(ruleset), 0)));
  return fd.has_value() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_landlock_restrict_self, fd.get(), 0) == 0;
#else
  return false;
#endif
}

absl::Status EnterSandbox() {
  if (prctl(PR_SET_DUMPABLE, 0) != 0 ||
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return absl::UnimplementedError(
        absl::StrCat("prctl(PR_SET_DUMPABLE or PR_SET_NO_NEW_PRIVS) failed "
                     "with error ",
                     errno));
  }
  DenyAllFiles();
  Filter filter;
  constexpr uint32_t kLastStandard = STDERR_FILENO;
  filter.AllowUpTo(SYS_read, 0, STDIN_FILENO);
  filter.AllowUpTo(SYS_recvfrom, 0, STDIN_FILENO);
  filter.AllowUpTo(SYS_sendto, 0, STDIN_FILENO);
  filter.AllowUpTo(SYS_write, 0, kLastStandard);
#ifdef SYS_poll
  filter.Allow(SYS_poll);
#endif
  filter.Allow(SYS_ppoll);
  filter.AllowWithout(SYS_mmap, 2, PROT_EXEC);
  filter.AllowWithout(SYS_mprotect, 2, PROT_EXEC);
  filter.Allow(SYS_munmap);
  filter.Allow(SYS_mremap);
  filter.Allow(SYS_madvise);
  filter.Allow(SYS_brk);
  filter.Allow(SYS_futex);
  filter.Allow(SYS_clock_gettime);
  filter.Allow(SYS_gettimeofday);
#ifdef SYS_time
  filter.Allow(SYS_time);
#endif
  filter.Allow(SYS_rt_sigreturn);
  filter.Allow(SYS_restart_syscall);
  filter.Allow(SYS_exit);
  filter.Allow(SYS_exit_group);
  return filter.Install();
}

}  // namespace datasetd
