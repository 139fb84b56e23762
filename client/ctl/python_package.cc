#include "client/ctl/python_package.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/ctl/child_process.h"

namespace datasetd::ctl {
namespace {

// Python looks in the working directory first, where anybody may have put a
// package of this name.
constexpr char kLeaveOutWorkingDirectory[] =
    "import sys; sys.path[:] = [path for path in sys.path if path]; ";
constexpr char kFindPackage[] =
    "import importlib.util; "
    "sys.exit(importlib.util.find_spec('datasetd') is None)";
constexpr char kRunPackage[] =
    "import runpy; "
    "runpy.run_module('datasetd', run_name='__main__', alter_sys=True)";

// Returns true if `python` is there and finds the package.
absl::StatusOr<bool> HasPackage(const std::string& python) {
  ChildProcess::Options child;
  child.arguments = {python, "-c",
                     absl::StrCat(kLeaveOutWorkingDirectory, kFindPackage)};
  child.output_to_stderr = true;
  const absl::StatusOr<pid_t> pid = ChildProcess::Start(child);
  if (absl::IsNotFound(pid.status())) return false;
  DATASETD_RETURN_IF_ERROR(pid.status());
  int status = 0;
  while (waitpid(*pid, &status, 0) != *pid) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "waitpid");
  }
  return ExitCodeOfWaitStatus(status) == 0;
}

// Returns $DATASETD_PYTHON if it is set, as by the wheel; else the first
// python3 that finds the package. NOT_FOUND if none finds it.
absl::StatusOr<std::string> FindPython(const std::string& what) {
  const char* const named = getenv("DATASETD_PYTHON");
  const bool is_named = named != nullptr && *named != '\0';
  const std::vector<std::string> pythons =
      is_named ? std::vector<std::string>{named}
               : std::vector<std::string>{"python3", "/usr/bin/python3"};
  for (const std::string& python : pythons) {
    DATASETD_ASSIGN_OR_RETURN(const bool has_package, HasPackage(python));
    if (has_package) return python;
  }
  return absl::NotFoundError(absl::StrCat(
      is_named ? absl::StrCat("'", named, "', which is $DATASETD_PYTHON,")
               : "python3",
      " finds no package `datasetd`, which ", what,
      ": install the wheel, or the Debian package datasetd; docs/packages.md "
      "tells how"));
}

}  // namespace

absl::Status ExecPythonPackage(const std::string& what,
                               const std::vector<std::string>& arguments) {
  DATASETD_ASSIGN_OR_RETURN(std::string python, FindPython(what));
  std::vector<std::string> words = {
      python, "-c", absl::StrCat(kLeaveOutWorkingDirectory, kRunPackage)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(python.c_str(), pointers.data());
  return absl::ErrnoToStatus(errno, absl::StrCat("execvp of ", python));
}

}  // namespace datasetd::ctl
