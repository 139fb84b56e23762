#include "base/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_format.h"

namespace datasetd {
namespace {

struct Character {
  size_t size_bytes = 0;  // 0: invalid UTF-8
  uint32_t code = 0;
};

struct Range {
  uint32_t first;
  uint32_t last;
};
// Non-ASCII control, separator and format characters (Unicode categories Cc,
// Zl, Zp and Cf, and other zero-width characters). Sorted.
constexpr Range kUnprintable[] = {
    {0x80, 0x9F},       {0xAD, 0xAD},       {0x34F, 0x34F},
    {0x600, 0x605},     {0x61C, 0x61C},     {0x6DD, 0x6DD},
    {0x70F, 0x70F},     {0x8E2, 0x8E2},     {0x115F, 0x1160},
    {0x17B4, 0x17B5},   {0x180E, 0x180E},   {0x200B, 0x200F},
    {0x2028, 0x202E},   {0x2060, 0x206F},   {0x3164, 0x3164},
    {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},
    {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x13438},
    {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};

bool IsPrintable(uint32_t code) {
  if (code < 0x80) return code >= 0x20 && code != 0x7F;
  const Range* const range = std::lower_bound(
      std::begin(kUnprintable), std::end(kUnprintable), code,
      [](const Range& range, uint32_t value) { return range.last < value; });
  return range == std::end(kUnprintable) || code < range->first;
}

bool IsJoiner(uint32_t code) { return code == 0x200C || code == 0x200D; }

Character FirstCharacter(absl::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {.size_bytes = 1, .code = first};
  const size_t size = first >= 0xF0   ? 4
                      : first >= 0xE0 ? 3
                      : first >= 0xC2 ? 2
                                      : 0;
  if (size == 0 || first > 0xF4 || size > text.size()) return {};
  uint32_t code = first & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  // Rejects overlong encodings, surrogates, and codes beyond U+10FFFF.
  if ((size == 3 && code < 0x800) || (size == 4 && code < 0x10000) ||
      (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) {
    return {};
  }
  return {.size_bytes = size, .code = code};
}

}  // namespace

size_t ValidUtf8Prefix(absl::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const size_t size = FirstCharacter(text.substr(offset)).size_bytes;
    if (size == 0) break;
    offset += size;
  }
  return offset;
}

void AppendPrintable(absl::string_view text, std::string* to) {
  // True if the previous character is printable and not ASCII.
  bool may_join = false;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    const size_t size = std::max<size_t>(character.size_bytes, 1);
    const absl::string_view bytes = text.substr(0, size);
    text.remove_prefix(size);
    bool is_printable =
        character.size_bytes != 0 && IsPrintable(character.code);
    if (character.size_bytes != 0 && IsJoiner(character.code) && may_join) {
      const uint32_t next = FirstCharacter(text).code;
      is_printable = next >= 0x80 && IsPrintable(next);
      may_join = false;
    } else {
      may_join = is_printable && character.code >= 0x80;
    }
    if (is_printable) {
      to->append(bytes.data(), bytes.size());
    } else if (bytes == "\n") {
      to->append("\\n");
    } else {
      for (const char byte : bytes) {
        absl::StrAppendFormat(to, "\\x%02x", static_cast<uint8_t>(byte));
      }
    }
  }
}

std::string PrintableUtf8(absl::string_view text) {
  std::string printable;
  AppendPrintable(text, &printable);
  return printable;
}

}  // namespace datasetd
