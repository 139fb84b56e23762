"""Objects that refuse attributes which nobody would read."""

from __future__ import annotations

from typing import Any, ClassVar, Mapping

_PACKAGE = __name__.partition(".")[0] + "."


class Fixed:
    """What is made cannot be changed: setting an attribute raises
    AttributeError, which names what works, unless it is a property that can be
    set, its name begins with "_", or a subclass of the user adds it."""

    # What works in the place of setting an attribute, by its name.
    _INSTEAD_OF_SETTING: ClassVar[Mapping[str, str]] = {}
    # The last line of a constructor sets it.
    _is_made = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or not self._is_made:
            object.__setattr__(self, name, value)
            return
        kind = type(self)
        known = getattr(kind, name, None)
        can_be_set = isinstance(known, property) and known.fset is not None
        is_new = name not in self.__dict__ and not hasattr(kind, name)
        instead = self._instead_of_setting(name)
        if can_be_set or (
            is_new and not instead and not kind.__module__.startswith(_PACKAGE)
        ):
            object.__setattr__(self, name, value)
            return
        raise AttributeError(
            f"{name} of a datasetd.{_public_name(kind)} cannot be set"
            + (": " if instead or is_new else "")
            + (instead or ("nothing would read it" if is_new else ""))
        )

    def _instead_of_setting(self, name: str) -> str:
        """Returns what works in the place of setting an attribute; empty if
        nothing is known."""
        return self._INSTEAD_OF_SETTING.get(name, "")


def missing(owner: object, name: str, instead: str) -> AttributeError:
    """Returns the error for __getattr__; `instead` may be empty."""
    return AttributeError(
        f"a datasetd.{_public_name(type(owner))} has no attribute {name!r}"
        + (f": {instead}" if instead else "")
    )


def _public_name(kind: type) -> str:
    """Returns the name of the package's class of which `kind` is one."""
    for base in kind.__mro__:
        if base.__module__.startswith(_PACKAGE) and base.__name__[0] != "_":
            return base.__name__
    return kind.__name__
