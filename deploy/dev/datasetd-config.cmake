# find_package(datasetd) makes the imported target datasetd::datasetd: the C API
# of libdatasetd.so, datasetd.h.
include_guard(GLOBAL)

get_filename_component(_datasetd_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(
  _datasetd_include "${_datasetd_lib}/../../include" ABSOLUTE)

add_library(datasetd::datasetd SHARED IMPORTED)
set_target_properties(
  datasetd::datasetd
  PROPERTIES
    IMPORTED_LOCATION "${_datasetd_lib}/libdatasetd.so.@ABI@"
    IMPORTED_SONAME "libdatasetd.so.@ABI@"
    INTERFACE_INCLUDE_DIRECTORIES "${_datasetd_include}")
if(NOT EXISTS "${_datasetd_lib}/libdatasetd.so.@ABI@")
  set(datasetd_FOUND FALSE)
  set(datasetd_NOT_FOUND_MESSAGE
      "${_datasetd_lib}/libdatasetd.so.@ABI@ is missing: install datasetd anew")
endif()

unset(_datasetd_lib)
unset(_datasetd_include)
