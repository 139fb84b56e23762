// datasetd_call: any method by its name, with JSON.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor_database.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/c_api/datasetd.h"
#include "client/c_api/methods.h"
#include "client/ctl/private_daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::FakeDaemon;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::TempDir;
using ::google::protobuf::DescriptorPool;
using ::google::protobuf::MethodDescriptor;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> CallableNames() {
  std::vector<std::string> names;
  for (const MethodDescriptor* const method : CallableMethods()) {
    names.push_back(method->name());
  }
  return names;
}

TEST(CallableMethodsTest, KnowAllServicesWhoseNamesAndRequestsDiffer) {
  std::vector<std::string> files;
  ASSERT_TRUE(
      DescriptorPool::internal_generated_database()->FindAllFileNames(&files));
  std::set<const google::protobuf::ServiceDescriptor*> known;
  for (const MethodDescriptor* const method : CallableMethods()) {
    known.insert(method->service());
  }
  std::set<std::string> names;
  std::set<const google::protobuf::Descriptor*> requests;
  for (const std::string& name : files) {
    if (!absl::StartsWith(name, "datasetd/v1/")) continue;
    const auto* const file =
        DescriptorPool::generated_pool()->FindFileByName(name);
    for (int i = 0; i < file->service_count(); ++i) {
      EXPECT_EQ(known.count(file->service(i)), 1u)
          << file->service(i)->full_name();
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const MethodDescriptor* const method = file->service(i)->method(j);
        EXPECT_TRUE(names.insert(method->name()).second) << method->name();
        EXPECT_TRUE(requests.insert(method->input_type()).second)
            << method->name();
        // UnaryCall looks for the method there.
        EXPECT_EQ(method->input_type()->file(), file) << method->name();
      }
    }
  }
  EXPECT_GT(names.size(), CallableMethods().size());
}

class Connection {
 public:
  explicit Connection(const std::string& address) {
    error_.struct_size = sizeof(error_);
    datasetd_client_options options = {};
    options.struct_size = sizeof(options);
    options.address = address.c_str();
    EXPECT_EQ(datasetd_client_connect(&options, &client_, &error_), DATASETD_OK)
        << error_.message;
  }
  ~Connection() { datasetd_client_close(client_); }

  // Returns the response, or "CODE: MESSAGE".
  std::string Call(const char* method, const char* request) {
    char* text = nullptr;
    const int32_t code =
        datasetd_call(client_, method, request, &text, &error_);
    if (code != DATASETD_OK) {
      EXPECT_EQ(text, nullptr);
      EXPECT_EQ(error_.code, code);
      return absl::StrCat(code, ": ", error_.message);
    }
    const std::string response = text;
    datasetd_free(text);
    return response;
  }
  datasetd_client* client() { return client_; }
  const datasetd_error& error() const { return error_; }

 private:
  datasetd_client* client_ = nullptr;
  datasetd_error error_ = {};
};

TEST(CallTest, NamesOfOtherMethodsAreRefused) {
  FakeDaemon daemon;
  Connection connection(daemon.address());
  for (const char* const method :
       {"GetSttus", "getStatus", "datasetd.v1.ServerService.GetStatus", "",
        "LoadDataset", "EstimateLoad", "PushDataset", "OpenFeed",
        "SendIndices"}) {
    EXPECT_EQ(connection.Call(method, "{}"),
              absl::StrCat("3: method '", method, "': datasetd_call calls ",
                           absl::StrJoin(CallableNames(), ", "),
                           "; loads, pushes and feeds have functions of their "
                           "own"));
  }
  EXPECT_THAT(connection.Call(nullptr, "{}"), StartsWith("3: method '': "));
  EXPECT_TRUE(daemon.open_requests().empty());
}

TEST(CallTest, RequestsThatAreNoJsonOfTheirMessageAreRefused) {
  FakeDaemon daemon;
  Connection connection(daemon.address());
  const auto is_refused = [](const char* what) {
    return AllOf(StartsWith("3: GetDatasetRequest as JSON: "), HasSubstr(what),
                 EndsWith("; its fields are those in proto/datasetd/v1/"
                          "dataset.proto"));
  };
  EXPECT_THAT(connection.Call("GetDataset", R"({"nmae": "fake"})"),
              is_refused("nmae"));
  EXPECT_THAT(connection.Call("GetDataset", R"({"name": {"a": 1}})"),
              is_refused("name"));
  EXPECT_THAT(connection.Call("GetDataset", R"({"name": )"),
              is_refused("Unexpected end of string"));
  EXPECT_THAT(connection.Call("GetDataset", ""), is_refused("end of string"));
  EXPECT_THAT(connection.Call("GetDataset", nullptr),
              is_refused("end of string"));
  EXPECT_THAT(connection.Call("GetDataset", "[]"),
              is_refused("must be a message"));
}

TEST(CallTest, ErrorsOfTheDaemonHaveTheirCodeDetailAndMessage) {
  FakeDaemon daemon;
  Connection connection(daemon.address());
  EXPECT_EQ(connection.Call("GetDataset", R"({"name": "none"})"),
            "5: no dataset 'none'");
  EXPECT_EQ(connection.error().detail, DATASETD_DETAIL_NONE);
  EXPECT_THAT(connection.Call("UnloadDataset", "{}"),
              StartsWith(absl::StrCat(DATASETD_UNIMPLEMENTED, ": ")));
  daemon.Die();
  EXPECT_THAT(connection.Call("GetStatus", "{}"),
              AllOf(StartsWith("14: "), HasSubstr("is gone")));
  EXPECT_EQ(connection.error().detail, DATASETD_DETAIL_DAEMON_GONE);
}

TEST(CallTest, ListsHaveAllPages) {
  FakeDaemon daemon;
  Connection connection(daemon.address());
  EXPECT_THAT(
      connection.Call("ListDatasets", "{}"),
      AllOf(HasSubstr(R"("name":"fake")"), HasSubstr(R"("name":"second")"),
            EndsWith(R"("next_page_token":""})")));
}

TEST(CallTest, CallsEveryMethod) {
  const TempDir folder(TempDir::Place::kShortPath);
  const auto program = ctl::FindDaemon("");
  ASSERT_THAT(program, IsOk());
  auto daemon = ctl::PrivateDaemon::Start(
      {.program = *program,
       .directory = folder.File("daemon"),
       .arguments = {"--device=cpu",
                     absl::StrCat("--exit_with_parent=", getpid())}});
  ASSERT_THAT(daemon, IsOk());
  Connection connection(daemon->address());
  datasetd_error error = {};
  error.struct_size = sizeof(error);
  datasetd_push* push = nullptr;
  ASSERT_EQ(datasetd_push_begin(connection.client(),
                                R"({"name": "d", "num_samples": 1, "fields": [
                                  {"name": "image", "dtype": "DTYPE_UINT8",
                                   "shape": [4, 4, 3], "is_image": true}]})",
                                nullptr, nullptr, &push, &error),
            DATASETD_OK)
      << error.message;
  const std::vector<uint8_t> pixels(48);
  EXPECT_EQ(datasetd_push_write(push, pixels.data(), pixels.size(), &error),
            DATASETD_OK);
  char* text = nullptr;
  ASSERT_EQ(datasetd_push_finish(push, &text, &error), DATASETD_OK)
      << error.message;
  datasetd_free(text);
  datasetd_push_close(push);
  datasetd_feed* feed = nullptr;
  ASSERT_EQ(datasetd_feed_open(
                connection.client(),
                R"({"dataset": "d", "batch_size": 1, "fields": {"image":
                  {"transforms": [{"vertical_flip": {}}]}}})",
                nullptr, &feed, &text, &error),
            DATASETD_OK)
      << error.message;
  const std::string info = text;
  datasetd_free(text);
  const std::string feed_id = info.substr(0, info.find(','));  // {"feed_id":"1"
  ASSERT_THAT(feed_id, StartsWith(R"({"feed_id":")"));

  const struct {
    const char* method;
    std::string request;
    const char* response;
  } calls[] = {
      {"GetStatus", "{}", R"("num_datasets":1)"},
      {"GetDataset", R"({"name": "d"})", R"({"dataset":{"name":"d")"},
      {"ListDatasets", "{}", R"({"datasets":[{"name":"d")"},
      {"ListFeeds", "{}", R"("dataset":"d")"},
      {"GetFeedTransforms", feed_id + "}", R"("vertical_flip")"},
      {"ExplainTransforms",
       R"({"dataset": "d", "indices": ["0"], "fields": {"image":
           {"transforms": [{"vertical_flip": {}}]}}})",
       R"("name":"VerticalFlip")"},
      {"UnloadDataset", R"({"name": "d"})", "9: "},
      {"ReleaseDataset", R"({"name": "d"})", "{}"},
      {"UnloadDataset", R"({"name": "d", "force": true})", "{}"},
  };
  std::set<std::string> called;
  for (const auto& call : calls) {
    called.insert(call.method);
    EXPECT_THAT(connection.Call(call.method, call.request.c_str()),
                HasSubstr(call.response))
        << call.method;
  }
  const std::vector<std::string> names = CallableNames();
  EXPECT_EQ(called, std::set<std::string>(names.begin(), names.end()));
  datasetd_feed_close(feed);
  // The response may be left out.
  EXPECT_EQ(
      datasetd_call(connection.client(), "GetStatus", "{}", nullptr, &error),
      DATASETD_OK);
  daemon->Stop();
}

}  // namespace
}  // namespace datasetd::client
