#include "tests/emulated_gpu/driver/journal.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/emulated_gpu/driver/error_names.h"

namespace datasetd::emulated_driver {
namespace {

std::string ResultText(CUresult result) {
  const char* const name = ErrorName(result);
  return std::to_string(result) + " " + (name == nullptr ? "?" : name);
}

void Say(const std::string& text) {
  fprintf(stderr, "emulated GPU: %s\n", text.c_str());
}

}  // namespace

Journal::Journal(const std::string& path, bool aborts_on_finding)
    : aborts_on_finding_(aborts_on_finding) {
  if (path.empty()) return;
  fd_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    Say("DATASETD_EMULATED_GPU_LOG: cannot write " + path + ": " +
        strerror(errno));
    abort();
  }
}

void Journal::Call(const char* function, CUresult result,
                   const std::string& detail) {
  if (fd_ < 0) return;
  Write(std::string(function) + " = " + ResultText(result) +
        (detail.empty() ? "" : ": " + detail));
}

void Journal::Fault(CUresult result, const std::string& what) {
  const std::string text = "FAULT " + ResultText(result) + ": " + what;
  Say(text);
  Write(text);
}

void Journal::Finding(const std::string& what) {
  ++num_findings_;
  Say("FINDING " + what);
  Write("FINDING " + what);
  if (aborts_on_finding_) abort();
}

void Journal::Write(const std::string& text) {
  if (fd_ < 0) return;
  const std::string line = std::to_string(getpid()) + " " +
                           std::to_string(syscall(SYS_gettid)) + " " + text +
                           "\n";
  if (write(fd_, line.data(), line.size()) < 0) return;
}

}  // namespace datasetd::emulated_driver
