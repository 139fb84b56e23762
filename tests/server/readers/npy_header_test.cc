#include "server/readers/npy_header.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string DictError(const std::string& text) {
  const absl::Status status = ParseNpyDict(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
      << text << ": " << status;
  return std::string(status.message());
}

TEST(NpyHeaderTest, ParsesKeysInAnyOrderAndEitherQuote) {
  for (const char* text :
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2, 3), }   \n",
        "{'shape':(5,2,3),'fortran_order':False,'descr':'<f4'}",
        "{\"descr\": \"<f4\", \"shape\" : ( 5 , 2 , 3 , ),\n"
        "\"fortran_order\": False}"}) {
    auto header = ParseNpyDict(text);
    ASSERT_TRUE(header.ok()) << text << header.status();
    EXPECT_EQ(header->dtype, Dtype::kFloat32);
    EXPECT_FALSE(header->is_bool);
    EXPECT_THAT(header->shape, ElementsAre(5, 2, 3));
    EXPECT_EQ(header->data_bytes, 120);
  }
}

TEST(NpyHeaderTest, RefusesWhatIsNotTheDict) {
  const std::string good = "'descr': '|u1', 'fortran_order': False, ";
  EXPECT_THAT(DictError(""), HasSubstr("found the end, expected '{'"));
  EXPECT_THAT(DictError("{" + good + "'shape': (1,)} x"),
              HasSubstr("expected the end"));
  EXPECT_THAT(DictError("{" + good + "}"), HasSubstr("is missing"));
  EXPECT_THAT(DictError("{" + good + good + "'shape': (1,)}"),
              HasSubstr("each once"));
  EXPECT_THAT(DictError("{" + good + "'shape': (1,), 'evil': 1}"),
              HasSubstr("'evil'"));
  EXPECT_THAT(DictError("{" + good + "'shape': (1)}"), HasSubstr("tuple"));
  EXPECT_THAT(DictError("{" + good + "'shape': [1]}"), HasSubstr("'('"));
  EXPECT_THAT(DictError("{" + good + "'shape': (,)}"),
              HasSubstr("a whole number"));
  EXPECT_THAT(DictError("{" + good + "'shape': (-1,)}"),
              HasSubstr("found '-', expected a whole number"));
  EXPECT_THAT(DictError("{" + good + "'shape': (1 2,)}"), HasSubstr("')'"));
  EXPECT_THAT(DictError("{" + good + "'shape': (__import__('os'),)}"),
              HasSubstr("found '_'"));
  EXPECT_THAT(DictError("{'descr': '|u1"), HasSubstr("does not end"));
  EXPECT_THAT(DictError("{'descr': '|u\\x31', "), HasSubstr("escape"));
  EXPECT_THAT(DictError("{'descr': '|u1', 'fortran_order': 0"),
              HasSubstr("True or False"));
}

TEST(NpyHeaderTest, OtherDtypesAreNamed) {
  for (const char* descr :
       {"<u8", "<f16", "<c8", "|O", "<U4", "|S3", "<M8[ns]", "f4", ""}) {
    EXPECT_THAT(DictError(absl::StrCat("{'descr': '", descr,
                                       "', 'fortran_order': False, 'shape': "
                                       "(1,)}")),
                AllOf(HasSubstr(absl::StrCat("dtype '", descr, "'")),
                      HasSubstr("expected one of |u1 |b1 <i2")));
  }
  EXPECT_THAT(DictError("{'descr': '>f4', 'fortran_order': False, 'shape': "
                        "(1,)}"),
              HasSubstr("big-endian"));
  EXPECT_THAT(DictError("{'descr': '|O', 'fortran_order': False, 'shape': "
                        "(1,)}"),
              HasSubstr("ragged=True"));
  EXPECT_THAT(DictError("{'descr': [('x', '<f4')], 'fortran_order': False, "
                        "'shape': (1,)}"),
              AllOf(HasSubstr("[('x"), HasSubstr("structured")));
}

TEST(NpyHeaderTest, FortranOrderIsRefusedWithTheWayOut) {
  EXPECT_THAT(DictError("{'descr': '<f4', 'fortran_order': True, 'shape': "
                        "(1, 2)}"),
              HasSubstr("numpy.ascontiguousarray"));
}

TEST(NpyHeaderTest, SizesAreCheckedForOverflow) {
  const std::string good = "{'descr': '<f8', 'fortran_order': False, ";
  EXPECT_THAT(DictError(good + "'shape': (4611686018427387904, 4)}"),
              HasSubstr("overflows 64 bits"));
  EXPECT_THAT(DictError(good + "'shape': (9223372036854775808,)}"),
              HasSubstr("an extent overflows"));
  EXPECT_THAT(DictError(good + "'shape': (0, 9)}"), HasSubstr("zero samples"));
  EXPECT_THAT(DictError(good + "'shape': (9, 0)}"), HasSubstr("zero elements"));
  EXPECT_THAT(DictError(good + "'shape': ()}"), HasSubstr("no dimension"));
  std::string many = "1";
  for (int i = 0; i < 40; ++i) many += ", 1";
  EXPECT_THAT(DictError(good + "'shape': (" + many + ")}"),
              HasSubstr("more than 32 dimensions"));
}

absl::Status HeaderStatus(const std::string& content) {
  testing::MemoryFileSystem files;
  files.Write("/a.npy", content);
  auto file = files.Open("/a.npy");
  EXPECT_TRUE(file.ok());
  return ReadNpyHeader(**file).status();
}

TEST(NpyHeaderTest, MagicVersionAndLengthAreChecked) {
  EXPECT_THAT(std::string(HeaderStatus("PK\3\4 is a zip file").message()),
              AllOf(HasSubstr("/a.npy: offset 0"), HasSubstr("PK"),
                    HasSubstr("NUMPY")));
  EXPECT_THAT(
      std::string(HeaderStatus(std::string("\x93NUMPY\4\0\1\0", 10)).message()),
      HasSubstr("format version 4.0, expected"));
  EXPECT_THAT(
      std::string(HeaderStatus(std::string("\x93NUMPY\1\1\1\0", 10)).message()),
      HasSubstr("format version 1.1, expected"));
  absl::Status status =
      HeaderStatus(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("4294967295 bytes, expected at most 65536")));
  status = HeaderStatus(std::string("\x93NUMPY\1\0\xff\0{", 11));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("a header of 255 bytes, found 1")));
}

}  // namespace
}  // namespace datasetd
