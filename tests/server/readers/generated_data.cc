#include "tests/server/readers/generated_data.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"

namespace datasetd::testing {
namespace {

Dtype DtypeOfName(const std::string& name) {
  for (int value = 1; DtypeSizeBytes(static_cast<Dtype>(value)) != 0; ++value) {
    if (name == DtypeName(static_cast<Dtype>(value))) {
      return static_cast<Dtype>(value);
    }
  }
  ADD_FAILURE() << "no dtype " << name;
  std::abort();
}

}  // namespace

const std::string& GeneratedDirectory() {
  static const std::string* const directory = [] {
    auto* path = new std::string(::testing::TempDir());
    while (path->back() == '/') path->pop_back();
    path->append("/reader_data");
    const std::string command = absl::StrCat(
        "/usr/bin/python3 tests/server/readers/make_reader_data.py '", *path,
        "'");
    if (std::system(command.c_str()) != 0) {
      ADD_FAILURE() << command;
      std::abort();
    }
    return path;
  }();
  return *directory;
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    ADD_FAILURE() << "cannot read " << path;
    std::abort();
  }
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

GeneratedCase LoadGeneratedCase(const std::string& name) {
  const std::string directory = absl::StrCat(GeneratedDirectory(), "/", name);
  const auto json = nlohmann::json::parse(
      ReadFileOrDie(absl::StrCat(directory, "/expected.json")));
  GeneratedCase generated;
  generated.spec.set_format(json["format"]);
  generated.spec.set_split(json["split"]);
  SetOptions(generated.spec, json["options"].get<SpecOptions>());
  generated.directory = absl::StrCat(directory, "/source");
  generated.spec.set_path(generated.directory);
  if (const std::string below = json.value("path", ""); !below.empty()) {
    absl::StrAppend(generated.spec.mutable_path(), "/", below);
  }
  generated.num_samples = json["num_samples"];
  generated.class_names = json["class_names"];
  for (const auto& field : json["fields"]) {
    generated.fields.push_back({.name = field["name"],
                                .dtype = DtypeOfName(field["dtype"]),
                                .shape = field["shape"],
                                .is_image = field["is_image"],
                                .is_mask = field.value("is_mask", false),
                                .is_ragged = field.value("is_ragged", false)});
    generated.samples.push_back(ReadFileOrDie(absl::StrCat(
        directory, "/", generated.fields.back().name, ".expected")));
  }
  for (const std::string file : json["files"]) {
    generated.files.push_back(absl::StrCat(generated.directory, "/", file));
  }
  return generated;
}

MemoryFileSystem CopyToMemory(const GeneratedCase& generated) {
  MemoryFileSystem files;
  for (const std::string& path : generated.files) {
    files.Write(path, ReadFileOrDie(path));
  }
  return files;
}

}  // namespace datasetd::testing
