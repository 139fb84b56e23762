// Tar archives in memory, member by member.

#ifndef DATASETD_TESTS_SERVER_READERS_TAR_BYTES_H_
#define DATASETD_TESTS_SERVER_READERS_TAR_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace datasetd::testing {

// Two blocks of zeros, which end an archive.
inline const std::string kTarEnd(1024, '\0');

// The field of a size beyond 8 GiB.
inline std::string Base256(uint64_t size_bytes) {
  std::string field("\x80" + std::string(11, '\0'));
  for (size_t i = 12; i-- > 4; size_bytes >>= 8) {
    field[i] = static_cast<char>(size_bytes);
  }
  return field;
}

// Makes the checksum right.
inline void SignTarHeader(std::string& header) {
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char text[9];
  std::snprintf(text, sizeof(text), "%06o", sum);
  header.replace(148, 7, text, 7);
}

// `size` is its field.
inline std::string TarHeader(const std::string& name, const std::string& size,
                             char kind = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, size.size(), size);
  header[156] = kind;
  header.replace(257, 8, "ustar\00000", 8);
  SignTarHeader(header);
  return header;
}

inline std::string Member(const std::string& name, const std::string& content,
                          char kind = '0') {
  char size[13];
  std::snprintf(size, sizeof(size), "%011zo", content.size());
  std::string padded = content;
  padded.resize((content.size() + 511) / 512 * 512, '\0');
  return TarHeader(name, size, kind) + padded;
}

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_SERVER_READERS_TAR_BYTES_H_
