// Parses a pickle of plain data: numbers, texts, lists, tuples, dicts, and
// objects as the names of their constructors. Calls and imports nothing.
//
// Supports the opcodes with which Python 2 and 3 write such data in protocols 2
// to 4; any other opcode is an error. Texts stay in the file. At most
// kMaxValues values.

#ifndef DATASETD_SERVER_READERS_SMALL_SETS_PICKLE_DATA_H_
#define DATASETD_SERVER_READERS_SMALL_SETS_PICKLE_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/random_access_file.h"

namespace datasetd {

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kText,    // str or bytes: `number` is its offset in the file
    kList,    // `items`; also for tuples
    kDict,    // `items`: alternating keys and values
    kGlobal,  // `items`: module and name, as texts
    kObject,  // `items`: callable, arguments and the optional state
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  int64_t size_bytes = 0;      // of a text
  std::vector<int32_t> items;  // indices in PickleData::values
};

struct PickleData {
  static constexpr size_t kMaxValues = 1 << 20;

  std::vector<PickleValue> values;
  int32_t root = 0;

  const PickleValue& at(int32_t index) const {
    return values[static_cast<size_t>(index)];
  }
};

//   INVALID_ARGUMENT  not a pickle, an opcode that plain data does not need,
//                     too many values; names the offset
//   DATA_LOSS         truncated, or followed by other data
absl::StatusOr<PickleData> ReadPickle(const RandomAccessFile& file);

// The bytes of a text of at most 4096 bytes; empty for anything else.
absl::StatusOr<std::string> PickleText(const RandomAccessFile& file,
                                       const PickleValue& value);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SMALL_SETS_PICKLE_DATA_H_
