#include "tests/testing/temp_dir.h"

#include <stdlib.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

namespace datasetd::testing {
namespace {

std::string Parent(TempDir::Place place) {
  if (place == TempDir::Place::kShortPath) return "/tmp";
  for (const char* variable : {"TEST_TMPDIR", "TMPDIR"}) {
    const char* value = getenv(variable);
    if (value != nullptr && *value != '\0') return value;
  }
  return "/tmp";
}

}  // namespace

TempDir::TempDir(Place place) {
  std::string name = Parent(place) + "/datasetd_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    std::fprintf(stderr, "mkdtemp(%s): %s\n", name.c_str(), strerror(errno));
    std::abort();
  }
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (error) {
    std::fprintf(stderr, "cannot remove %s: %s\n", path_.c_str(),
                 error.message().c_str());
    std::abort();
  }
}

}  // namespace datasetd::testing
