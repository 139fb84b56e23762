"""The processor that is compiled for, as glibc, GCC's tools and pip name it."""

ARCH = select({
    "@platforms//cpu:aarch64": "aarch64",
    "//conditions:default": "x86_64",
})
