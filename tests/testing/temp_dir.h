// A directory of a test's own, removed with all it holds on destruction.
//
// Below $TEST_TMPDIR, else $TMPDIR, else /tmp. For Unix sockets, whose paths
// may have 107 bytes at most, ask for kShortPath: then always below /tmp.
// Failure to create or remove is a CHECK failure of the test: it aborts.

#ifndef DATASETD_TESTS_TESTING_TEMP_DIR_H_
#define DATASETD_TESTS_TESTING_TEMP_DIR_H_

#include <filesystem>
#include <string>

namespace datasetd::testing {

class TempDir {
 public:
  enum class Place { kTestTmpdir, kShortPath };

  explicit TempDir(Place place = Place::kTestTmpdir);
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // path() / name, as a string.
  std::string File(const std::string& name) const {
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_TESTING_TEMP_DIR_H_
