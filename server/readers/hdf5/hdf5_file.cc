#include "server/readers/hdf5/hdf5_file.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// Absolute, because for a relative name the library asks the system for the
// current directory.
constexpr char kSourceName[] = "/source";
constexpr size_t kMaxFields = 64;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxDimensions = 9;
constexpr size_t kChunkCacheBytes = 64 << 20;
constexpr uint64_t kMaxRowBytes = 256 << 20;

// The library's view of the file. The library copies driver arguments, so the
// only source is stored here.
struct Source {
  uint64_t size_bytes = 0;
  Hdf5File::ReadBytes read;
  haddr_t end = 0;  // as declared by the file's own header
};
Source* g_source = nullptr;

struct DriverFile {
  H5FD_t base;  // the library's part; must be first
  haddr_t end = 0;
};

// Refuses every other name: a file that the source refers to.
H5FD_t* DriverOpen(const char* name, unsigned flags, hid_t, haddr_t) {
  if (std::string(name) != kSourceName || (flags & H5F_ACC_RDWR) != 0) {
    return nullptr;
  }
  auto* const file = static_cast<DriverFile*>(calloc(1, sizeof(DriverFile)));
  return file == nullptr ? nullptr : &file->base;
}
herr_t DriverClose(H5FD_t* file) {
  free(file);
  return 0;
}
herr_t DriverQuery(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr) {
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_DATA_SIEVE;
  }
  return 0;
}
haddr_t DriverEoa(const H5FD_t* file, H5FD_mem_t) {
  return reinterpret_cast<const DriverFile*>(file)->end;
}
herr_t DriverSetEoa(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  reinterpret_cast<DriverFile*>(file)->end = address;
  g_source->end = address;
  return 0;
}
haddr_t DriverEof(const H5FD_t*, H5FD_mem_t) { return g_source->size_bytes; }
herr_t DriverRead(H5FD_t*, H5FD_mem_t, hid_t, haddr_t address, size_t size,
                  void* buffer) {
  return g_source->read(address, size, buffer) ? 0 : -1;
}
herr_t DriverWrite(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) {
  return -1;
}

hid_t RegisterDriver() {
  H5FD_class_t driver = {};
  driver.name = "datasetd";
  driver.maxaddr = (haddr_t{1} << 62) - 1;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.open = DriverOpen;
  driver.close = DriverClose;
  driver.query = DriverQuery;
  driver.get_eoa = DriverEoa;
  driver.set_eoa = DriverSetEoa;
  driver.get_eof = DriverEof;
  driver.read = DriverRead;
  driver.write = DriverWrite;
  for (H5FD_mem_t& type : driver.fl_map) type = H5FD_MEM_DEFAULT;
  return H5FDregister(&driver);
}

absl::Status Invalid(absl::string_view source, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("dataset '", absl::Utf8SafeCHexEscape(source), "' ", what));
}
bool IsFieldName(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
  });
}
absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the HDF5 library cannot read ", what,
                                          "; the file may be "
                                          "damaged or cut off"));
}

// The dtype for a numeric type, and the type to read it as; empty if it is not
// numeric. Widened without loss if datasetd has no such dtype.
std::string DtypeOf(hid_t type, hid_t* memory_type) {
  const size_t size = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  const bool is_signed = kind == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
  if (kind == H5T_ENUM && size == 1) {
    *memory_type = H5Tcopy(type);
    return "uint8";  // h5py's bool
  }
  if (kind == H5T_FLOAT && size == 2) {
    *memory_type = H5Tcopy(type);
    return H5Tget_order(type) == H5T_ORDER_LE && H5Tget_precision(type) == 16 &&
                   H5Tget_ebias(type) == 15
               ? "float16"
               : "";
  }
  const auto read_as = [&](hid_t native, const char* dtype) {
    *memory_type = H5Tcopy(native);
    return dtype;
  };
  if (kind == H5T_FLOAT && size == 4) {
    return read_as(H5T_NATIVE_FLOAT, "float32");
  }
  if (kind == H5T_FLOAT && size == 8) {
    return read_as(H5T_NATIVE_DOUBLE, "float64");
  }
  if (kind != H5T_INTEGER) return "";
  if (size == 1 && !is_signed) return read_as(H5T_NATIVE_UINT8, "uint8");
  if (size == 1 || (size == 2 && is_signed)) {
    return read_as(H5T_NATIVE_INT16, "int16");
  }
  if (size == 2 || (size == 4 && is_signed)) {
    return read_as(H5T_NATIVE_INT32, "int32");
  }
  if (size == 4 || (size == 8 && is_signed)) {
    return read_as(H5T_NATIVE_INT64, "int64");
  }
  return "";
}

// Collects datasets in the root group, by name. Skips external and soft links.
herr_t CollectName(hid_t group, const char* name, const H5L_info_t* info,
                   void* names) {
  H5O_info_t object = {};
  if (info->type == H5L_TYPE_HARD &&
      H5Oget_info_by_name(group, name, &object, H5P_DEFAULT) >= 0 &&
      object.type == H5O_TYPE_DATASET) {
    static_cast<std::vector<std::string>*>(names)->push_back(name);
  }
  return static_cast<std::vector<std::string>*>(names)->size() > kMaxFields;
}

bool IsNumeric(hid_t file, const std::string& name) {
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  if (dataset < 0) return true;  // reported when it is opened as a field
  const hid_t type = H5Dget_type(dataset);
  const hid_t space = H5Dget_space(dataset);
  hid_t memory_type = -1;
  const bool is_numeric = !DtypeOf(type, &memory_type).empty() &&
                          H5Sget_simple_extent_ndims(space) > 0;
  if (memory_type >= 0) H5Tclose(memory_type);
  H5Sclose(space);
  H5Tclose(type);
  H5Dclose(dataset);
  return is_numeric;
}

}  // namespace

void Hdf5File::InitLibrary() {
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);  // no filters from shared libraries
  // Following such a link would first ask the system for directories.
  H5Lunregister(H5L_TYPE_EXTERNAL);
}

absl::StatusOr<Hdf5File> Hdf5File::Open(uint64_t size_bytes, ReadBytes read,
                                        const std::string& fields) {
  InitLibrary();
  // Lives as long as the process.
  if (g_source == nullptr) g_source = new Source;
  *g_source = {.size_bytes = size_bytes, .read = std::move(read)};
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (H5Pset_driver(access, RegisterDriver(), nullptr) < 0 ||
      H5Pset_cache(access, 0, 521, kChunkCacheBytes, 0.75) < 0) {
    return Damaged("anything");
  }
  Hdf5File file;
  file.file_ = H5Fopen(kSourceName, H5F_ACC_RDONLY, access);
  if (file.file_ < 0) {
    return absl::InvalidArgumentError(
        "no HDF5 file, or its beginning is damaged");
  }
  if (g_source->end != size_bytes) {
    return absl::DataLossError(absl::StrCat(size_bytes, " bytes, expected ",
                                            g_source->end,
                                            " as its own header says"));
  }
  if (!fields.empty()) {
    for (const absl::string_view item : absl::StrSplit(fields, ',')) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(item, absl::MaxSplits(':', 1));
      DATASETD_RETURN_IF_ERROR(file.AddField(pair.first, pair.second));
    }
    return file;
  }
  std::vector<std::string> names;
  hsize_t position = 0;
  if (H5Literate(file.file_, H5_INDEX_NAME, H5_ITER_INC, &position, CollectName,
                 &names) < 0) {
    return Damaged("the root group");
  }
  for (const std::string& name : names) {
    if (!IsNumeric(file.file_, name)) continue;
    DATASETD_RETURN_IF_ERROR(file.AddField(name, name));
  }
  if (!file.fields_.empty()) return file;
  return absl::InvalidArgumentError(
      "the root group holds no dataset of numbers; choose some with option "
      "fields, as image:group/images,label:group/labels");
}

absl::Status Hdf5File::AddField(const std::string& name,
                                const std::string& source) {
  if (fields_.size() == kMaxFields || source.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "more than ", kMaxFields, " datasets, or a name of more than ",
        kMaxNameBytes, " bytes; choose with option fields"));
  }
  if (!IsFieldName(name)) {
    return Invalid(source,
                   "cannot name a field; choose with option fields, as "
                   "image:path/in/file");
  }
  Field field = {.name = name, .source = source};
  if (H5Lexists(file_, source.c_str(), H5P_DEFAULT) <= 0) {
    return Invalid(source, "is not there");
  }
  field.dataset = H5Dopen2(file_, source.c_str(), H5P_DEFAULT);
  if (field.dataset < 0) {
    return Invalid(source, "is no dataset of this file, or is damaged");
  }
  const hid_t creation = H5Dget_create_plist(field.dataset);
  if (creation < 0) return Damaged(source);
  if (H5Pget_external_count(creation) != 0 ||
      H5Pget_layout(creation) == H5D_VIRTUAL) {
    return Invalid(source, "keeps its data in other files, which are not read");
  }
  const hid_t type = H5Dget_type(field.dataset);
  const hid_t space = H5Dget_space(field.dataset);
  if (type < 0 || space < 0) return Damaged(source);
  field.dtype = DtypeOf(type, &field.memory_type);
  if (field.dtype.empty() || field.memory_type < 0) {
    return Invalid(source,
                   "does not hold numbers: expected integers of up to 64 bits "
                   "with sign, or float16 (little-endian), float32, float64");
  }
  const int rank = H5Sget_simple_extent_ndims(space);
  if (rank < 1 || rank > static_cast<int>(kMaxDimensions)) {
    return Invalid(source, absl::StrCat("has ", rank,
                                        " dimensions, expected the samples' "
                                        "first, and at most ",
                                        kMaxDimensions));
  }
  field.extents.resize(static_cast<size_t>(rank));
  if (H5Sget_simple_extent_dims(space, field.extents.data(), nullptr) != rank) {
    return Damaged(source);
  }
  field.row_bytes = H5Tget_size(field.memory_type);
  for (size_t i = 0; i < field.extents.size(); ++i) {
    const uint64_t extent = field.extents[i];
    if (extent == 0) return Invalid(source, "has zero samples or elements");
    if (i > 0 && (extent > kMaxRowBytes / field.row_bytes)) {
      return Invalid(source, "has samples of more than 256 MiB");
    }
    if (i > 0) field.row_bytes *= extent;
  }
  H5Sclose(space);
  H5Tclose(type);
  H5Pclose(creation);
  fields_.push_back(std::move(field));
  return absl::OkStatus();
}

std::string Hdf5File::Describe() const {
  std::string text;
  for (const Field& field : fields_) {
    absl::StrAppend(&text, field.name, " ", field.dtype);
    for (const hsize_t extent : field.extents) {
      absl::StrAppend(&text, " ", static_cast<uint64_t>(extent));
    }
    text.push_back('\n');
  }
  return text;
}

absl::Status Hdf5File::ReadRows(uint64_t index, uint64_t first, uint64_t count,
                                std::vector<uint8_t>& rows) const {
  if (index >= fields_.size() || count == 0 ||
      first >= fields_[index].extents[0] ||
      count > fields_[index].extents[0] - first) {
    return absl::InvalidArgumentError("no such rows");
  }
  const Field& field = fields_[index];
  rows.resize(count * field.row_bytes);
  std::vector<hsize_t> begin(field.extents.size(), 0);
  std::vector<hsize_t> counts = field.extents;
  begin[0] = first;
  counts[0] = count;
  const hid_t space = H5Dget_space(field.dataset);
  const hid_t memory =
      H5Screate_simple(static_cast<int>(counts.size()), counts.data(), nullptr);
  const bool is_read =
      space >= 0 && memory >= 0 &&
      H5Sselect_hyperslab(space, H5S_SELECT_SET, begin.data(), nullptr,
                          counts.data(), nullptr) >= 0 &&
      H5Dread(field.dataset, field.memory_type, memory, space, H5P_DEFAULT,
              rows.data()) >= 0;
  if (memory >= 0) H5Sclose(memory);
  if (space >= 0) H5Sclose(space);
  if (is_read) return absl::OkStatus();
  return Damaged(absl::StrCat("rows ", first, " to ", first + count - 1,
                              " of dataset '",
                              absl::Utf8SafeCHexEscape(field.source), "'"));
}

}  // namespace datasetd
