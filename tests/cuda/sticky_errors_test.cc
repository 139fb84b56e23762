// The errors after which cuda.h wants a new process, as the toolkit at hand
// lists them.

#include <cuda.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "cuda/device/status.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

TEST(StickyErrorsTest, AreThoseAfterWhichCudaWantsANewProcess) {
  std::stringstream text;
  text << std::ifstream(getenv("CUDA_H")).rdbuf();
  // A comment, and the number of the error below it.
  const std::regex entry(
      R"(/\*\*((?:[^*]|\*+[^*/])*)\*/\s*(CUDA_ERROR_\w+)\s*=\s*(\d+))");
  const std::string header = text.str();
  int num_errors = 0;
  int num_sticky = 0;
  for (auto it = std::sregex_iterator(header.begin(), header.end(), entry);
       it != std::sregex_iterator(); ++it) {
    const std::string comment =
        std::regex_replace((*it)[1].str(), std::regex(R"([\s*]+)"), " ");
    ++num_errors;
    if (comment.find("process must be terminated and relaunched") ==
        std::string::npos) {
      continue;
    }
    ++num_sticky;
    EXPECT_TRUE(IsSticky(static_cast<CUresult>(std::stoi((*it)[3].str()))))
        << (*it)[2].str();
  }
  // The comments were found.
  EXPECT_GT(num_errors, 80);
  EXPECT_GE(num_sticky, 8);
}

}  // namespace
}  // namespace datasetd
