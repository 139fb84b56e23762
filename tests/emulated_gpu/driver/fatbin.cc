#include "tests/emulated_gpu/driver/fatbin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace datasetd::emulated_driver {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kContainerMagic = 0xba55ed50;
constexpr uint16_t kPtxEntry = 1;
constexpr uint64_t kLz4 = 0x2000;
constexpr uint64_t kZstd = 0x8000;

// fatbinary_section.h: __fatBinC_Wrapper_t.
struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* unused;
};

struct ContainerHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t size_bytes;
};

struct EntryHeader {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t size_bytes;
  uint32_t compressed_bytes;
  uint32_t unused[2];
  uint32_t architecture;
  uint32_t name_offset_bytes;
  uint32_t name_bytes;
  uint64_t flags;
  uint64_t unused_too;
  uint64_t original_bytes;
};
static_assert(offsetof(EntryHeader, architecture) == 28);
static_assert(offsetof(EntryHeader, original_bytes) == 56);

// Debian's libzstd1, without its headers: nothing else here needs them.
bool DecompressZstd(const char* from, size_t from_bytes, std::string* to) {
  using Function = size_t (*)(void*, size_t, const void*, size_t);
  static const auto decompress = [] {
    void* const library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    return library == nullptr
               ? nullptr
               : reinterpret_cast<Function>(dlsym(library, "ZSTD_decompress"));
  }();
  return decompress != nullptr &&
         decompress(to->data(), to->size(), from, from_bytes) == to->size();
}

bool ReadPtx(const EntryHeader& header, const char* payload, std::string* text,
             std::string* why) {
  if ((header.flags & kLz4) != 0) {
    *why =
        "the PTX is compressed with LZ4, which is not emulated: build with "
        "--compress-mode=none or size";
    return false;
  }
  if ((header.flags & kZstd) == 0) {
    text->assign(payload, header.size_bytes);
  } else {
    constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
    text->resize(std::min(header.original_bytes, kMaxBytes));
    if (!DecompressZstd(payload, header.compressed_bytes, text)) {
      *why = "the PTX cannot be decompressed; is libzstd.so.1 there?";
      return false;
    }
  }
  text->resize(strnlen(text->data(), text->size()));
  return true;
}

bool IsText(const void* image) {
  // PTX ISA, "PTX Module Directives": .version comes first.
  const char* const text = static_cast<const char*>(image);
  return strncmp(text, "//", 2) == 0 || strncmp(text, ".version", 8) == 0 ||
         text[0] == '\n';
}

int VersionOf(const std::string& ptx) {
  const size_t at = ptx.find(".version");
  int major = 0;
  int minor = 0;
  if (at == std::string::npos ||
      sscanf(ptx.c_str() + at, ".version %d.%d", &major, &minor) != 2) {
    return -1;
  }
  return major * 10 + minor;
}

int TargetOf(const std::string& ptx) {
  const size_t at = ptx.find(".target");
  int target = 0;
  if (at == std::string::npos ||
      sscanf(ptx.c_str() + at, ".target sm_%d", &target) != 1) {
    return -1;
  }
  return target;
}

// PTX ISA, "Release Notes": 7.0 came with CUDA 11.0, 8.0 with 12.0, 9.0 with
// 13.0. The minor numbers go together, but 12.6 brought no new one.
int NewestVersion(int driver_version) {
  const int major = driver_version / 1000;
  int minor = driver_version % 1000 / 10;
  if (major == 12 && minor >= 6) --minor;
  return (major - 4) * 10 + minor;
}

// CUDA Programming Guide, "Binary Compatibility": the same major number, and
// no smaller minor one.
bool RunsMachineCode(int capability, int architecture) {
  return architecture / 10 == capability / 10 && architecture <= capability;
}

}  // namespace

bool ReadFatbin(const void* image, std::vector<FatbinEntry>* entries,
                std::string* why) {
  Wrapper wrapper;
  memcpy(&wrapper.magic, image, sizeof(wrapper.magic));
  if (wrapper.magic == kWrapperMagic) {
    memcpy(&wrapper, image, sizeof(wrapper));
    image = wrapper.data;
  }
  ContainerHeader container;
  memcpy(&container, image, sizeof(container));
  if (container.magic != kContainerMagic || container.version != 1) {
    *why = "neither PTX nor a container of `nvcc -fatbin`";
    return false;
  }
  const char* next = static_cast<const char*>(image) + container.header_bytes;
  uint64_t left_bytes = container.size_bytes;
  while (left_bytes >= sizeof(EntryHeader)) {
    EntryHeader header;
    memcpy(&header, next, sizeof(header));
    if (header.header_bytes < sizeof(header) ||
        header.header_bytes > left_bytes ||
        header.size_bytes > left_bytes - header.header_bytes ||
        header.compressed_bytes > header.size_bytes) {
      *why = "a broken container";
      return false;
    }
    FatbinEntry entry;
    entry.is_ptx = header.kind == kPtxEntry;
    entry.architecture = static_cast<int>(header.architecture);
    if (entry.is_ptx &&
        !ReadPtx(header, next + header.header_bytes, &entry.text, why)) {
      return false;
    }
    entries->push_back(std::move(entry));
    next += header.header_bytes + header.size_bytes;
    left_bytes -= header.header_bytes + header.size_bytes;
  }
  return true;
}

CUresult SelectPtx(const void* image, int capability, int driver_version,
                   std::string* ptx, int* version, std::string* why) {
  std::vector<FatbinEntry> entries;
  if (IsText(image)) {
    FatbinEntry entry;
    entry.is_ptx = true;
    entry.text = static_cast<const char*>(image);
    entry.architecture = TargetOf(entry.text);
    entries.push_back(std::move(entry));
  } else if (!ReadFatbin(image, &entries, why)) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const FatbinEntry* best = nullptr;
  const FatbinEntry* any = nullptr;
  bool has_machine_code = false;
  std::string found;
  for (const FatbinEntry& entry : entries) {
    found += (found.empty() ? "" : ", ") +
             std::string(entry.is_ptx ? "compute_" : "sm_") +
             std::to_string(entry.architecture);
    if (!entry.is_ptx) {
      has_machine_code |= RunsMachineCode(capability, entry.architecture);
      continue;
    }
    if (any == nullptr || entry.architecture < any->architecture) {
      any = &entry;
    }
    if (entry.architecture <= capability &&
        (best == nullptr || entry.architecture > best->architecture)) {
      best = &entry;
    }
  }
  // Machine code cannot be run: PTX of the same source stands in for it.
  const bool is_stand_in = best == nullptr && has_machine_code;
  if (is_stand_in) best = any;
  if (best == nullptr) {
    *why =
        "the image has " + (found.empty() ? "nothing" : found) +
        ", the device is sm_" + std::to_string(capability) +
        (has_machine_code ? "; machine code without PTX is not emulated" : "");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  *version = VersionOf(best->text);
  if (*version < 0) {
    *why = "PTX without .version";
    return CUDA_ERROR_INVALID_PTX;
  }
  if (!has_machine_code && *version > NewestVersion(driver_version)) {
    *why = "PTX version " + std::to_string(*version / 10) + "." +
           std::to_string(*version % 10) + " with a driver of CUDA " +
           std::to_string(driver_version / 1000) + "." +
           std::to_string(driver_version % 1000 / 10);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  *ptx = best->text;
  return CUDA_SUCCESS;
}

}  // namespace datasetd::emulated_driver
