#include "client/ctl/preview/png_file.h"

#include <png.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

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

// Writes all and closes the file. Returns errno, or 0.
int WriteAndClose(const std::vector<uint8_t>& bytes, std::FILE* file) {
  const bool is_written =
      std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int error = errno;
  if (std::fclose(file) != 0 && is_written) return errno;
  return is_written ? 0 : error;
}

// Returns the path of the file that the image replaces, which may not exist;
// empty if what is at `path` cannot be replaced: a pipe, a device, or a link to
// one or to nothing.
std::string FindReplaced(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status) ||
      std::filesystem::is_regular_file(status)) {
    return path;
  }
  const auto target = std::filesystem::canonical(path, error);
  return !error && std::filesystem::is_regular_file(target, error)
             ? target.string()
             : "";
}

absl::Status WriteInPlace(const std::vector<uint8_t>& bytes,
                          const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return FileError(path, errno);
  const int error = WriteAndClose(bytes, file);
  return error == 0 ? absl::OkStatus() : FileError(path, error);
}

}  // namespace

absl::Status WritePng(const RgbImage& image, const std::string& path) {
  DATASETD_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, Encode(image));
  const std::string replaced = FindReplaced(path);
  if (replaced.empty()) return WriteInPlace(bytes, path);
  std::string temporary = absl::StrCat(replaced, ".XXXXXX");
  const int fd = mkstemp(temporary.data());
  if (fd < 0) return FileError(path, errno);
  const mode_t mask = umask(0);
  umask(mask);
  int error = fchmod(fd, 0666 & ~mask) == 0 ? 0 : errno;
  if (std::FILE* const file = fdopen(fd, "wb"); file != nullptr) {
    const int write_error = WriteAndClose(bytes, file);
    if (error == 0) error = write_error;
  } else {
    error = errno;
    close(fd);
  }
  if (error == 0 && rename(temporary.c_str(), replaced.c_str()) != 0) {
    error = errno;
  }
  if (error == 0) return absl::OkStatus();
  unlink(temporary.c_str());
  return FileError(path, error);
}

}  // namespace datasetd::ctl
