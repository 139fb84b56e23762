"""The version, which is the daemon's, too."""

__version__ = "0.1.0"  # a test compares
