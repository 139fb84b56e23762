// protobuf's header, whose maps are larger under ThreadSanitizer than Debian's
// library has them.

#pragma GCC system_header
#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
