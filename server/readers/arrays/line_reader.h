// Reads the lines of a text file in order. Not thread-safe. Buffers the longest
// line so far, at most kMaxLineBytes, and some read-ahead.

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

  // Sets `line` to the next line without its end (LF or CRLF), valid until the
  // next call; false at the end of the file.
  //   INVALID_ARGUMENT  longer than kMaxLineBytes, or contains a NUL
  //   DATA_LOSS         the disk failed
  absl::StatusOr<bool> Next(absl::string_view* line);

  // Of the last line: its number, from 1, and its offset.
  int64_t line_number() const { return line_number_; }
  int64_t line_offset() const { return line_offset_; }

 private:
  const RandomAccessFile* const file_;
  std::string buffer_;
  size_t begin_ = 0;         // of the next line in buffer_
  int64_t file_offset_ = 0;  // after the bytes in buffer_
  int64_t line_number_ = 0;
  int64_t line_offset_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARRAYS_LINE_READER_H_
