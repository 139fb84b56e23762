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
  uint32_t unused;
  // The version of PTX, or of the machine code's ABI.
  uint16_t minor_version;
  uint16_t major_version;
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

// "LZ4 Block Format Description".
bool DecompressLz4(const char* from, size_t from_bytes, std::string* to) {
  const char* const end = from + from_bytes;
  size_t at = 0;
  // Adds the bytes that follow a length of 15.
  const auto extend = [&](size_t* length) {
    if (*length != 15) return true;
    uint8_t more = 255;
    while (more == 255) {
      if (from == end) return false;
      more = static_cast<uint8_t>(*from++);
      *length += more;
    }
    return true;
  };
  while (from != end) {
    const auto token = static_cast<uint8_t>(*from++);
    size_t literals = token >> 4;
    if (!extend(&literals) || literals > static_cast<size_t>(end - from) ||
        literals > to->size() - at) {
      return false;
    }
    memcpy(to->data() + at, from, literals);
    from += literals;
    at += literals;
    if (from == end) break;
    uint16_t distance = 0;
    if (end - from < 2) return false;
    memcpy(&distance, from, sizeof(distance));
    from += sizeof(distance);
    size_t length = token & 15;
    if (!extend(&length)) return false;
    length += 4;
    if (distance == 0 || distance > at || length > to->size() - at) {
      return false;
    }
    // Byte by byte: the match may reach into itself.
    for (; length > 0; --length, ++at) (*to)[at] = (*to)[at - distance];
  }
  return at == to->size();
}

bool ReadPtx(const EntryHeader& header, const char* payload, std::string* text,
             std::string* why) {
  const bool is_zstd = (header.flags & kZstd) != 0;
  if (!is_zstd && (header.flags & kLz4) == 0) {
    text->assign(payload, header.size_bytes);
  } else {
    constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
    text->resize(std::min(header.original_bytes, kMaxBytes));
    const auto decompress = is_zstd ? DecompressZstd : DecompressLz4;
    if (!decompress(payload, header.compressed_bytes, text)) {
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

// RAPIDS, rapids_cuda_enable_fatbin_compression: Zstandard needs R550, which is
// of CUDA 12.4.
constexpr int kZstdVersion = 12040;

// CUDA Compatibility, "Minor Version Compatibility": a driver runs machine code
// of the toolkits of its major number, as far as it knows the ABI. CUDA 12.8
// has brought 8, for 10.0 and 12.0, and CUDA 13 writes nothing else.
int NewestAbi(int driver_version) { return driver_version < 12080 ? 7 : 8; }

std::string CudaText(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

// Why a driver of this version refuses what it would load; "" if it does not.
std::string RefusalOf(const FatbinEntry& entry, int driver_version) {
  if (entry.is_zstd && driver_version < kZstdVersion) {
    return "Zstandard with a driver of " + CudaText(driver_version);
  }
  if (!entry.is_ptx && entry.abi > NewestAbi(driver_version)) {
    return "machine code of ABI " + std::to_string(entry.abi) +
           " with a driver of " + CudaText(driver_version);
  }
  return "";
}

// "sm_90" or "compute_90".
std::string NameOf(const FatbinEntry& entry) {
  return (entry.is_ptx ? "compute_" : "sm_") +
         std::to_string(entry.architecture);
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
    entry.is_zstd = (header.flags & kZstd) != 0;
    entry.abi = entry.is_ptx ? 0 : header.minor_version;
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
                   Selection* selection, std::string* why) {
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
  const FatbinEntry* machine_code = nullptr;
  std::string found;
  for (const FatbinEntry& entry : entries) {
    found += (found.empty() ? "" : ", ") + NameOf(entry);
    if (!entry.is_ptx) {
      if (RunsMachineCode(capability, entry.architecture)) {
        machine_code = &entry;
      }
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
  if (const FatbinEntry* const loaded =
          machine_code != nullptr ? machine_code : best;
      loaded != nullptr) {
    *why = RefusalOf(*loaded, driver_version);
    if (!why->empty()) return CUDA_ERROR_INVALID_IMAGE;
    selection->image = NameOf(*loaded);
  }
  // Machine code cannot be run: PTX of the same source stands in for it.
  if (best == nullptr && machine_code != nullptr) best = any;
  if (best == nullptr) {
    *why =
        "the image has " + (found.empty() ? "nothing" : found) +
        ", the device is sm_" + std::to_string(capability) +
        (machine_code != nullptr ? "; machine code without PTX is not emulated"
                                 : "");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const int version = VersionOf(best->text);
  if (version < 0) {
    *why = "PTX without .version";
    return CUDA_ERROR_INVALID_PTX;
  }
  if (machine_code == nullptr && version > NewestVersion(driver_version)) {
    *why = "PTX version " + std::to_string(version / 10) + "." +
           std::to_string(version % 10) + " with a driver of " +
           CudaText(driver_version);
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  selection->ptx = best->text;
  selection->version = version;
  return CUDA_SUCCESS;
}

}  // namespace datasetd::emulated_driver
