#include "client/ctl/python_package.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/ctl/child_process.h"

namespace datasetd::ctl {
namespace {

constexpr char kPython[] = "python3";
constexpr char kFindPackage[] =
    "import importlib.util, sys; "
    "sys.exit(importlib.util.find_spec('datasetd') is None)";

// Returns true if Python finds the package; an error if there is no Python.
absl::StatusOr<bool> HasPackage() {
  ChildProcess::Options child;
  child.arguments = {kPython, "-c", kFindPackage};
  child.output_to_stderr = true;
  DATASETD_ASSIGN_OR_RETURN(const pid_t pid, ChildProcess::Start(child));
  int status = 0;
  while (waitpid(pid, &status, 0) != pid) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "waitpid");
  }
  return ExitCodeOfWaitStatus(status) == 0;
}

}  // namespace

absl::Status ExecPythonPackage(const std::string& what,
                               const std::vector<std::string>& arguments) {
  DATASETD_ASSIGN_OR_RETURN(const bool has_package, HasPackage());
  if (!has_package) {
    return absl::NotFoundError(
        absl::StrCat("python3 finds no package `datasetd`, which ", what,
                     ": install the wheel, or the Debian package datasetd; "
                     "docs/packages.md tells how"));
  }
  std::vector<std::string> words = {kPython, "-m", "datasetd"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(kPython, pointers.data());
  return absl::ErrnoToStatus(errno, "execvp of python3");
}

}  // namespace datasetd::ctl
