#include "client/path_advice.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PathAdviceTest : public ::testing::Test {
 protected:
  PathAdviceTest() {
    setenv("HOME", home_.c_str(), 1);
    std::filesystem::create_directories(directory_.path() / "pets" / "cats");
    for (const char* const name : {"train-000.tar", "train-001.tar"}) {
      std::ofstream{directory_.path() / name};
    }
    std::ofstream{directory_.path() / "pets" / "cats" / "1.jpg"};
  }
  std::string File(const std::string& name) { return directory_.File(name); }

  const TempDir directory_;
  const std::string home_ = directory_.File("home");
};

TEST_F(PathAdviceTest, NothingForWhatIsThere) {
  EXPECT_EQ(PathAdvice(File("pets")), "");
  EXPECT_EQ(PathAdvice(File("train-000.tar")), "");
  EXPECT_EQ(PathAdvice(""), "");
}

TEST_F(PathAdviceTest, TheNearestName) {
  EXPECT_EQ(PathAdvice(File("pts")),
            absl::StrCat(File("pts"),
                         ": no such file or directory: did you "
                         "mean ",
                         File("pets"), "?"));
  // In the middle of the path, and with what follows if that is there.
  EXPECT_THAT(PathAdvice(File("pest/cats/1.jpg")), Not(EndsWith("pets?")));
  EXPECT_THAT(PathAdvice(File("pet/cats/1.jpg")),
              EndsWith(absl::StrCat("mean ", File("pets/cats/1.jpg"), "?")));
  EXPECT_THAT(PathAdvice(File("PETS/dogs")),
              EndsWith(absl::StrCat("mean ", File("pets"), "?")));
  EXPECT_THAT(PathAdvice(File("pets/cats/1.jpeg")), HasSubstr("1.jpg?"));
  EXPECT_THAT(PathAdvice(File("frogs")), EndsWith("no such file or directory"));
  EXPECT_THAT(PathAdvice(File("frogs/green")),
              EndsWith(absl::StrCat("there is no 'frogs' in ",
                                    directory_.path().string())));
}

TEST_F(PathAdviceTest, Urls) {
  for (const char* const url :
       {"https://a.org/x.tar", "s3://bucket/x", "gs://bucket/x"}) {
    EXPECT_THAT(PathAdvice(url),
                AllOf(StartsWith(absl::StrCat(url, ": URLs are not read")),
                      HasSubstr("download"), HasSubstr("datasetd.push")));
  }
  EXPECT_THAT(PathAdvice("hf://datasets/mnist"),
              HasSubstr("datasets.load_dataset"));
  EXPECT_THAT(PathAdvice("file:///data/x"), EndsWith("give the path, /data/x"));
  EXPECT_FALSE(IsUrl("/data/a:/b"));
  EXPECT_FALSE(IsUrl("/data/x y://b"));
}

TEST_F(PathAdviceTest, Stars) {
  EXPECT_THAT(PathAdvice(File("train-*.tar")),
              AllOf(HasSubstr("patterns are written {000..009}"),
                    HasSubstr("2 files here would fit"),
                    HasSubstr("sorted(glob.glob(path))")));
  EXPECT_THAT(PathAdvice(File("val-00?.tar")), HasSubstr("no file here fits"));
  // A name that has one.
  std::ofstream{directory_.path() / "a*"};
  EXPECT_EQ(PathAdvice(File("a*")), "");
}

TEST_F(PathAdviceTest, VariablesAndHomes) {
  setenv("PETS", File("pets").c_str(), 1);
  for (const char* const path : {"/here/$PETS/cats", "${PETS}/cats"}) {
    EXPECT_THAT(
        PathAdvice(path),
        AllOf(HasSubstr("are not expanded"),
              HasSubstr(absl::StrCat("give ", File("pets/cats"), ","))));
  }
  unsetenv("PETS");
  EXPECT_THAT(PathAdvice("$PETS/cats"), HasSubstr("$PETS is not set"));
  EXPECT_THAT(PathAdvice("/here/~/cats"),
              EndsWith(absl::StrCat("give ", home_, "/cats")));
}

TEST_F(PathAdviceTest, Backslashes) {
  EXPECT_THAT(PathAdvice(File("pets\\cats\\1.jpg")),
              EndsWith(absl::StrCat("written with /; ", File("pets/cats/1.jpg"),
                                    " is there")));
  EXPECT_THAT(PathAdvice("C:\\data\\x"),
              HasSubstr("'C:\\data\\x' is a path of Windows"));
}

TEST_F(PathAdviceTest, OnlyAnErrorOfAFileThatIsNotHereEitherChanges) {
  const auto missing = [](const std::string& path) {
    return absl::NotFoundError(absl::StrCat(
        "dataset 'd': ", path,
        ": no such file or directory, as seen by the daemon; if it exists for "
        "you, push the samples with the client, add the directory to "
        "data_roots, or run a private daemon with `datasetctl run`; paths are "
        "in column 0"));
  };
  EXPECT_THAT(
      ExplainMissingFile(missing(File("pts"))),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(StartsWith("dataset 'd': /"), HasSubstr("did you mean"),
                     Not(HasSubstr("data_roots")),
                     EndsWith("?; paths are in column 0"))));
  EXPECT_EQ(ExplainMissingFile(missing(File("pets"))), missing(File("pets")));
  const absl::Status outside = absl::PermissionDeniedError(absl::StrCat(
      File("pts"), ": not below a data root, as seen by the daemon (none)"));
  EXPECT_THAT(ExplainMissingFile(outside),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("did you mean")));
  const absl::Status other = absl::NotFoundError("/x: no reader 'y'");
  EXPECT_EQ(ExplainMissingFile(other), other);
}

}  // namespace
}  // namespace datasetd::client
