// Takes root's right to read and write everything from a test's thread.

#ifndef DATASETD_TESTS_TESTING_SCOPED_UNPRIVILEGED_H_
#define DATASETD_TESTS_TESTING_SCOPED_UNPRIVILEGED_H_

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace datasetd::testing {

// While it lives, this thread is refused what the mode of a file refuses its
// owner, also if it is root's.
class ScopedUnprivileged {
 public:
  ScopedUnprivileged() {
    EXPECT_EQ(syscall(SYS_capget, &header_, before_), 0);
    __user_cap_data_struct without[2] = {before_[0], before_[1]};
    without[0].effective &=
        ~((1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH));
    EXPECT_EQ(syscall(SYS_capset, &header_, without), 0);
  }
  ~ScopedUnprivileged() {
    EXPECT_EQ(syscall(SYS_capset, &header_, before_), 0);
  }
  ScopedUnprivileged(const ScopedUnprivileged&) = delete;
  ScopedUnprivileged& operator=(const ScopedUnprivileged&) = delete;

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_SCOPED_UNPRIVILEGED_H_
