#include "server/core/utf8.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"

namespace datasetd {
namespace {

// Bytes of the character that begins `text`; 0 if it is none, or a control
// character.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  const size_t size = first >= 0xF0   ? 4
                      : first >= 0xE0 ? 3
                      : first >= 0xC2 ? 2
                                      : 0;
  if (size == 0 || first > 0xF4 || size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer than need be, surrogates, beyond the last character, and the second
  // block of control characters.
  const uint8_t second = byte(1);
  const bool is_wrong = (first == 0xE0 && second < 0xA0) ||
                        (first == 0xED && second >= 0xA0) ||
                        (first == 0xF0 && second < 0x90) ||
                        (first == 0xF4 && second >= 0x90) ||
                        (first == 0xC2 && second < 0xA0);
  return is_wrong ? 0 : size;
}

}  // namespace

std::string PrintableUtf8(absl::string_view text) {
  for (absl::string_view rest = text; !rest.empty();) {
    const size_t size = CharacterBytes(rest);
    if (size == 0) return absl::CHexEscape(text);
    rest.remove_prefix(size);
  }
  return std::string(text);
}

}  // namespace datasetd
