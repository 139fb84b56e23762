#include "server/config/config.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::Config WithDefaults(const std::string& yaml) {
  auto config = ParseConfig(yaml, "test.yaml");
  EXPECT_TRUE(config.ok()) << config.status();
  ApplyDefaults(&*config);
  return *std::move(config);
}

TEST(ConfigTest, DefaultsAreThoseOfTheSchemaAndValid) {
  const v1::Config config = WithDefaults("");
  EXPECT_EQ(config.socket_path(), "/run/datasetd/datasetd.sock");
  EXPECT_EQ(config.socket_mode(), "0660");
  EXPECT_EQ(config.drain_timeout().seconds(), 5);
  EXPECT_EQ(config.attach_timeout().seconds(), 10);
  EXPECT_EQ(config.log_level(), "info");
  EXPECT_EQ(config.slab_export(), "auto");
  EXPECT_EQ(config.max_sessions(), 1024u);
  EXPECT_EQ(config.max_feeds(), 1024u);
  EXPECT_EQ(config.devices_size(), 0);
  EXPECT_EQ(config.memory_budget_mib(), 0u);
  EXPECT_EQ(config.host_threads(), 0u);
  EXPECT_EQ(config.transform_limits().max_side(), 1u << 24);
  EXPECT_EQ(config.transform_limits().max_scratch_mib(), 1024u);
  EXPECT_EQ(config.transform_limits().max_operations(), uint64_t{1} << 34);
  EXPECT_EQ(config.max_sample_memory_mib(), 1024u);
  EXPECT_EQ(config.decode_memory_mib(), 2048u);
  EXPECT_EQ(config.push_spool_mib(), 1024u);
  EXPECT_EQ(
      WithDefaults("cache: {directory: /var/cache/datasetd}").push_spool_mib(),
      65536u);
  EXPECT_TRUE(ValidateConfig(config).ok()) << ValidateConfig(config);
}

TEST(ConfigTest, WhatIsGivenStays) {
  const v1::Config config = WithDefaults(
      "socket_path: /tmp/d/a.sock\nsocket_mode: 0600\ndrain_timeout: 0s\n"
      "log_level: warn\nmax_feeds: 3\nmax_sample_memory_mib: 3000\n");
  EXPECT_EQ(config.decode_memory_mib(), 6000u);
  EXPECT_EQ(config.socket_mode(), "0600");
  EXPECT_EQ(config.drain_timeout().seconds(), 0);
  EXPECT_EQ(config.log_level(), "warn");
  EXPECT_EQ(config.max_feeds(), 3u);
  EXPECT_TRUE(ValidateConfig(config).ok()) << ValidateConfig(config);
}

TEST(ConfigTest, AFullConfigurationIsValid) {
  const v1::Config config = WithDefaults(R"(
socket_path: /run/datasetd/datasetd.sock
socket_group: datasetd
devices: ["cuda:0", "cuda:12", cpu]
memory_budget_mib: 1024
data_roots: [/data]
log_levels: {server: trace, service: debug, attach: info, producer: warn,
             load: error}
slab_export: cuda_vmm_fd
cache: {directory: /var/cache/datasetd, limit_mib: 1000}
state_directory: /var/lib/datasetd
datasets:
  - {name: cifar10-train, format: cifar10, path: /data/c, device: "cuda:0"}
  - {name: 9.x_y, format: npy, path: /data/n}
)");
  EXPECT_TRUE(ValidateConfig(config).ok()) << ValidateConfig(config);
}

TEST(ConfigTest, EveryBadValueIsNamedWithWhatIsAllowed) {
  const std::string a_dataset = "{name: a, format: npy, path: /n}";
  struct {
    std::string yaml;
    const char* key;
    const char* expected;
  } cases[] = {
      {"socket_path: d.sock", "socket_path is 'd.sock'", "absolute"},
      {"socket_path: /" + std::string(107, 'x'), "socket_path", "107 bytes"},
      {"socket_mode: 0999", "socket_mode is '0999'", "octal"},
      {"socket_mode: 1660", "socket_mode is '1660'", "octal"},
      {"socket_mode: rw", "socket_mode is 'rw'", "0660"},
      {"devices: [gpu]", "devices[0] is 'gpu'", "cpu, cuda:N or GPU-UUID"},
      {"devices: [cpu, 'cuda:']", "devices[1] is 'cuda:'", "cuda:N"},
      {"devices: ['cuda:-1']", "devices[0]", "cuda:N"},
      {"devices: [cpu, cpu]", "devices[1] is 'cpu'", "once"},
      {"memory_budget_mib: 18446744073709551615", "memory_budget_mib",
       "at most 17592186044415"},
      {"host_threads: 1025", "host_threads is '1025'", "at most 1024"},
      {"host_threads: 4294967295", "host_threads is '4294967295'",
       "at most 1024"},
      {"data_roots: [/a, b]", "data_roots[1] is 'b'", "absolute"},
      {"drain_timeout: -1s", "drain_timeout is '-1s'", "0s"},
      {"drain_timeout: 25h", "drain_timeout", "at most 24h"},
      {"exit_when_idle: -1s", "exit_when_idle is '-1s'", "0s"},
      {"evict_unused_after: -1s", "evict_unused_after is '-1s'", "0s"},
      {"max_unused_percent: 101", "max_unused_percent is '101'", "at most 100"},
      {"attach_timeout: 0s", "attach_timeout", "more than 0s"},
      {"log_level: loud", "log_level is 'loud'",
       "trace, debug, info, warn, error, off"},
      {"log_levels: {net: info}", "log_levels is 'net'",
       "server, service, attach, producer, load"},
      {"log_levels: {attach: loud}", "log_levels.attach is 'loud'", "trace"},
      {"slab_export: dma", "slab_export is 'dma'",
       "auto, cuda_ipc_handle, cuda_vmm_fd"},
      {"cache: {limit_mib: 5}", "cache.directory is ''", "absolute"},
      {"cache: {directory: c}", "cache.directory is 'c'", "absolute"},
      {"{cache: {directory: /a}, state_directory: /a}",
       "cache.directory is '/a'", "another path than state_directory"},
      {"cache: {directory: /a, limit_mib: 8796093022208}", "cache.limit_mib",
       "at most 8796093022207"},
      {"user_limits: {max_cache_mib: 8796093022208}",
       "user_limits.max_cache_mib", "at most 8796093022207"},
      {"user_limits: {max_dataset_mib: 17592186044416}",
       "user_limits.max_dataset_mib", "at most 17592186044415"},
      {"user_limits: {max_slab_mib: 17592186044416}",
       "user_limits.max_slab_mib", "at most 17592186044415"},
      {"user_limits: {max_scratch_mib: 17592186044416}",
       "user_limits.max_scratch_mib", "at most 17592186044415"},
      {"user_limits: {max_text_mib: 17592186044416}",
       "user_limits.max_text_mib", "at most 17592186044415"},
      {"user_limits: {max_calls: 49}", "user_limits.max_calls", "at most 48"},
      {"user_limits: {max_loads: 33}", "user_limits.max_loads", "at most 32"},
      {"transform_limits: {max_side: 16777217}",
       "transform_limits.max_side is '16777217'", "at most 16777216"},
      {"transform_limits: {max_scratch_mib: 18446744073709551615}",
       "transform_limits.max_scratch_mib", "at most 1099511627776"},
      {"transform_limits: {max_operations: 9223372036854775808}",
       "transform_limits.max_operations", "at most 9223372036854775807"},
      {"push_spool_mib: 8796093022208", "push_spool_mib",
       "at most 8796093022207"},
      {"max_sample_memory_mib: 18446744073709551615", "max_sample_memory_mib",
       "at most 1099511627776"},
      {"decode_memory_mib: 18446744073709551615", "decode_memory_mib",
       "at most 2199023255552"},
      {"{max_sample_memory_mib: 100, decode_memory_mib: 199}",
       "decode_memory_mib is '199'", "at least twice max_sample_memory_mib"},
      {"state_directory: s", "state_directory is 's'", "absolute"},
      {"datasets: [{format: npy, path: /n}]", "datasets[0].name is ''",
       "letter"},
      {"datasets: [{name: a b, format: npy, path: /n}]", "'a b'", "letter"},
      {"datasets: [{name: .a, format: npy, path: /n}]", "'.a'", "letter"},
      {"datasets: [{name: " + std::string(129, 'a') + "}]", ".name", "128"},
      {"datasets: [" + a_dataset + ", " + a_dataset + "]",
       "datasets[1].name is 'a'", "datasets[0]"},
      {"datasets: [{name: a, path: /n}]", "datasets[0].format", "format"},
      {"datasets: [{name: a, format: npy, path: n}]", "datasets[0].path is 'n'",
       "absolute"},
      {"datasets: [{name: a, format: npy, path: /n, device: tpu}]",
       "datasets[0].device is 'tpu'", "cuda:N"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ValidateConfig(WithDefaults(c.yaml)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(c.key), HasSubstr(c.expected))))
        << c.yaml;
  }
}

TEST(ConfigTest, LoadsAFileAndNamesItInErrors) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/c.yaml");
  std::ofstream(path) << "socket_mode: 0600\n";
  auto config = LoadConfig(path);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->socket_mode(), "0600");
  std::ofstream(path) << "a: 1\n";
  EXPECT_THAT(std::string(LoadConfig(path).status().message()),
              HasSubstr(absl::StrCat(path, ": line 1: unknown key 'a'")));
}

TEST(ConfigTest, UnreadableFilesAreErrors) {
  const std::string missing = absl::StrCat(::testing::TempDir(), "/none.yaml");
  absl::Status status = LoadConfig(missing).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(missing)));
  status = LoadConfig(::testing::TempDir()).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               HasSubstr("Is a directory")));
  const std::string large = absl::StrCat(::testing::TempDir(), "/large.yaml");
  std::ofstream(large) << std::string(3 << 20, '#');
  EXPECT_EQ(LoadConfig(large).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace datasetd
