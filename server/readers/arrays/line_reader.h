// The lines of a text file in order. Not thread-safe. Holds the longest line so
// far, at most kMaxLineBytes, and what it read ahead.

#ifndef DATASETD_SERVER_READERS_ARRAYS_LINE_READER_H_
#define DATASETD_SERVER_READERS_ARRAYS_LINE_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/files/random_access_file.h"

namespace datasetd {

class LineReader {
 public:
  static constexpr size_t kMaxLineBytes = 8 << 20;

  // `file` outlives the reader.
  explicit LineReader(const RandomAccessFile* file) : file_(file) {}

  // Leaves the next line, without its end (LF or CRLF), in `line` until the
  // next call; false at the end of the file.
  //   INVALID_ARGUMENT  longer than kMaxLineBytes, or a NUL in it
  //   DATA_LOSS         of the disk
  absl::StatusOr<bool> Next(absl::string_view* line);

  // Of the last line: counted from 1, and where it begins.
  int64_t line_number() const { return line_number_; }
  int64_t line_offset() const { return line_offset_; }

 private:
  const RandomAccessFile* const file_;
  std::string buffer_;
  size_t begin_ = 0;         // of the next line in buffer_
  int64_t file_offset_ = 0;  // after buffer_
  int64_t line_number_ = 0;
  int64_t line_offset_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_LINE_READER_H_
