// Sources that make_reader_data.py wrote, and what they must read as.

#ifndef DATASETD_TESTS_SERVER_READERS_GENERATED_DATA_H_
#define DATASETD_TESTS_SERVER_READERS_GENERATED_DATA_H_

#include <string>
#include <vector>

#include "server/readers/reader.h"
#include "tests/server/readers/memory_file_system.h"

namespace datasetd::testing {

struct GeneratedCase {
  v1::DatasetSpec spec;   // spec.path() is real: `directory`, or below it
  std::string directory;  // of all files
  int64_t num_samples = 0;
  std::vector<FieldSpec> fields;
  std::vector<std::string> samples;  // all bytes of each field
  std::vector<std::string> class_names;
  std::vector<std::string> files;  // absolute
};

// The directory of all cases; runs the script in the first call.
const std::string& GeneratedDirectory();

GeneratedCase LoadGeneratedCase(const std::string& name);

std::string ReadFileOrDie(const std::string& path);

// The case's files under the same paths.
MemoryFileSystem CopyToMemory(const GeneratedCase& generated);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_SERVER_READERS_GENERATED_DATA_H_
