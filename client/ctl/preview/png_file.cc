#include "client/ctl/preview/png_file.h"

#include <png.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd::ctl {
namespace {

absl::StatusOr<std::vector<uint8_t>> Encode(const RgbImage& image) {
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> bytes(PNG_IMAGE_PNG_SIZE_MAX(header));
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0,
                                image.pixels.data(), 0, nullptr) == 0) {
    return absl::InternalError(absl::StrCat("libpng: ", header.message));
  }
  bytes.resize(size);
  return bytes;
}

absl::Status FileError(const std::string& path, int error) {
  return absl::Status(absl::ErrnoToStatusCode(error),
                      absl::StrCat(path, ": ", strerror(error)));
}

}  // namespace

absl::Status WritePng(const RgbImage& image, const std::string& path) {
  DATASETD_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, Encode(image));
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return FileError(path, errno);
  const mode_t mask = umask(0);
  umask(mask);
  std::FILE* const file = fdopen(fd, "wb");
  bool is_ok = fchmod(fd, 0666 & ~mask) == 0 &&
               std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  int error = errno;
  if (std::fclose(file) != 0 && is_ok) {
    is_ok = false;
    error = errno;
  }
  if (is_ok && rename(temporary.c_str(), path.c_str()) != 0) {
    is_ok = false;
    error = errno;
  }
  if (is_ok) return absl::OkStatus();
  unlink(temporary.c_str());
  return FileError(path, error);
}

}  // namespace datasetd::ctl
