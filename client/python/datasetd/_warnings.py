"""Warnings that point at the user's line."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Set

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep

_said: Set[str] = set()


def warn(message: str) -> None:
    """Warns at the innermost line outside of this package."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(message, UserWarning, stacklevel=level)


def warn_once(key: str, message: str) -> None:
    """Warns once per process and `key`."""
    if key not in _said:
        _said.add(key)
        warn(message)
