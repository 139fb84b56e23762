"""The C library, and connections by it."""
