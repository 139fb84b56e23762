"""Class names of a push, and the indices that labels become."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..errors import InvalidArgument
from ..sources._base import Note, index_of, listed, unlisted
from ..sources._csv import NUMBER

_OPTION = "class_names"


class Labels:
    """Class names, and indices for text and for the data's own indices.

    Attributes: names, the class names, of text without a list once all() or
    settle() was called; field, the field of the labels, or empty.
    """

    def __init__(
        self,
        given: Optional[List[str]],
        own: Sequence[str],
        own_field: str,
        ignores_others: bool,
        notes: List[Note],
    ) -> None:
        """`given`: class_names; `own`: the names of the data's own indices, in
        its field `own_field`."""
        self.names = list(own) if given is None else given
        self.is_listed = bool(self.names)
        self.is_given = bool(given)
        self.ignores_others = ignores_others
        self.field = ""
        self._notes = notes
        # Of each class, once text or own indices need it.
        self._index: Dict[str, int] = {}
        self._is_asked = False
        self._num_others = 0
        self._others: Dict[str, None] = {}
        # The index for each of the data's own.
        self._own: List[str] = []
        if given and own and list(own) != given:
            is_renamed = len(own) == len(given) and not set(own) & set(given)
            if not is_renamed:
                self._own = list(own)
                self._index = index_of(given, _OPTION)
                self.field = own_field
        if ignores_others and not given:
            raise InvalidArgument(
                "ignore_other_classes leaves out samples of classes that "
                "class_names= does not list: also pass class_names="
            )

    def list_categories(self, column: Any) -> None:
        """Takes the list of a categorical column of pandas, if it is text."""
        dtype = getattr(column, "dtype", None)
        categories = list(getattr(dtype, "categories", ()))
        is_text = all(isinstance(name, str) for name in categories)
        if not self.is_listed and categories and is_text:
            self.names = categories
            self.is_listed = True

    def translates(self, field: str) -> bool:
        """True if indices of this field are those of another list."""
        return bool(self._own) and field == self.field

    def begin(self, field: str, is_asked: bool) -> None:
        """Makes the text of a field the labels. With `is_asked` numbers are
        text, too."""
        if self.field not in ("", field):
            raise InvalidArgument(
                f"fields {self.field!r} and {field!r} contain text or classes, "
                "but only one may: leave the other out with fields="
            )
        self.field = field
        self._is_asked = is_asked
        if self.is_listed and not self._index:
            self._index = index_of(self.names, _OPTION)

    def of_text(self, text: str, where: str) -> Optional[int]:
        """Returns the index; None for a class to be left out. Without a list
        they are those of first use, until settle()."""
        index = self._index.get(text)
        if index is None and not self.is_listed:
            is_number = any(map(str.isdigit, text)) and NUMBER.fullmatch(
                text.strip()
            )
            if is_number and not self._is_asked:
                raise InvalidArgument(
                    f"{where} is {text!r}, a number as text: convert all to "
                    "numbers, e.g. int(value), or pass class_names= if they "
                    "are names of classes"
                )
            self.names.append(text)
            index = self._index[text] = len(self.names) - 1
        if index is None:
            self._leave_out(text, where)
        return index

    def of_own(self, label: int, where: str) -> Optional[int]:
        """Returns the index for one of the data's own."""
        if not 0 <= label < len(self._own):
            raise InvalidArgument(
                f"{where} is class {label}, but the data has "
                f"{len(self._own)} classes"
            )
        text = self._own[label]
        index = self._index.get(text)
        if index is None:
            self._leave_out(text, where)
        return index

    def _leave_out(self, text: str, where: str) -> None:
        if not self.ignores_others:
            raise unlisted(text, where, self.names, _OPTION)
        self._num_others += 1
        self._others[text] = None

    def settle(self) -> List[int]:
        """Sorts names of text that had no list; returns the index for each of
        those that of_text() gave."""
        names = sorted(self.names)
        index = {name: i for i, name in enumerate(names)}
        moved = [index[name] for name in self.names]
        self.names = names
        self._notes.append(
            Note(
                f"the text of field {self.field!r} became {len(names)} "
                f"classes, sorted: {listed(names)}"
            )
        )
        return moved

    def all(
        self, values: Sequence[Any], field: str, where: str, is_asked: bool
    ) -> List[Any]:
        """Returns the index, or None, of each text of a column."""
        for row, value in enumerate(values):
            if not isinstance(value, str):
                raise InvalidArgument(
                    f"{where}, row {row} is {value!r}, but other rows are "
                    "text: fill or drop it, or leave the column out with "
                    "fields="
                )
        self.begin(field, is_asked)
        indices: List[Any] = [
            self.of_text(str(text), f"{where}, row {row}")
            for row, text in enumerate(values)
        ]
        if not self.is_listed:
            moved = self.settle()
            indices = [moved[index] for index in indices]
        return indices

    def told(self) -> None:
        """Adds the note of what was left out."""
        if self._others:
            self._notes.append(
                Note(
                    f"left out: {self._num_others} samples of classes that "
                    f"are not listed, {listed(self._others)}"
                )
            )


def names_of_features(features: Mapping[str, Any]) -> Any:
    """Returns (class names, field) of a Hugging Face dataset's features."""
    labels = {n: f for n, f in features.items() if _is_class_label(f)}
    if "label" in labels:
        return list(labels["label"].names), "label"
    if len(labels) == 1:
        ((field, feature),) = labels.items()
        return list(feature.names), field
    return [], ""


def _is_class_label(feature: Any) -> bool:
    return type(feature).__name__ == "ClassLabel" and bool(feature.names)
