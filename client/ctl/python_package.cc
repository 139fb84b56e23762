#include "client/ctl/python_package.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/ctl/child_process.h"

namespace datasetd::ctl {
namespace {

// The first argument is the directory of the package that came with this
// program, or empty. Python looks in the working directory first, where anybody
// may have put a package of this name.
constexpr char kSetPath[] =
    "import sys; "
    "sys.path[:] = filter(None, [sys.argv.pop(1), *sys.path]); ";
// NumPy is what makes pictures.
constexpr char kFindPackages[] =
    "from importlib.util import find_spec; "
    "sys.exit(1 if find_spec('datasetd') is None else "
    "2 if find_spec('numpy') is None else 0)";
constexpr char kRunPackage[] =
    "from datasetd.__main__ import main; "
    "sys.exit(main(sys.argv[1:], 'datasetctl'))";

enum class Packages { kNone, kDatasetd, kDatasetdAndNumpy };

// Returns the directory of the package in a release, else "".
std::string DirectoryBeside() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = self.parent_path().parent_path() / "python";
  return !error &&
                 std::filesystem::exists(beside / "datasetd/__init__.py", error)
             ? beside.string()
             : "";
}

std::vector<std::string> PythonCommand(const std::string& python,
                                       const char* program) {
  return {python, "-c", absl::StrCat(kSetPath, program), DirectoryBeside()};
}

// Returns what `python` finds, or kNone if there is no such program.
absl::StatusOr<Packages> FindPackages(const std::string& python) {
  ChildProcess::Options child;
  child.arguments = PythonCommand(python, kFindPackages);
  child.output_to_stderr = true;
  const absl::StatusOr<pid_t> pid = ChildProcess::Start(child);
  if (absl::IsNotFound(pid.status())) return Packages::kNone;
  DATASETD_RETURN_IF_ERROR(pid.status());
  int status = 0;
  while (waitpid(*pid, &status, 0) != *pid) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "waitpid");
  }
  switch (ExitCodeOfWaitStatus(status)) {
    case 0:
      return Packages::kDatasetdAndNumpy;
    case 2:
      return Packages::kDatasetd;
    default:
      return Packages::kNone;
  }
}

// Returns $DATASETD_PYTHON if it is set, as by the wheel; else the first
// python3 that finds the package and NumPy, or at least the package. NOT_FOUND
// if none finds it.
absl::StatusOr<std::string> FindPython(const std::string& what) {
  const char* const named = getenv("DATASETD_PYTHON");
  const bool is_named = named != nullptr && *named != '\0';
  const std::vector<std::string> pythons =
      is_named ? std::vector<std::string>{named}
               : std::vector<std::string>{"python3", "/usr/bin/python3"};
  std::string found;
  for (const std::string& python : pythons) {
    DATASETD_ASSIGN_OR_RETURN(const Packages packages, FindPackages(python));
    if (packages == Packages::kDatasetdAndNumpy) return python;
    if (packages == Packages::kDatasetd && found.empty()) found = python;
  }
  if (!found.empty()) return found;
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
  DATASETD_ASSIGN_OR_RETURN(const std::string python, FindPython(what));
  std::vector<std::string> words = PythonCommand(python, kRunPackage);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(python.c_str(), pointers.data());
  return absl::ErrnoToStatus(errno, absl::StrCat("execvp of ", python));
}

}  // namespace datasetd::ctl
