"""Shows the progress of loads on stderr."""

from __future__ import annotations

import sys
from typing import Any, Dict, Optional, Tuple, Union


def _position(message: Dict[str, Any]) -> Tuple[int, int, int]:
    """Returns samples done, total samples, and bytes, of a load or dry run."""
    if "num_samples_scanned" in message:
        return (
            int(message["num_samples_scanned"]),
            int(message["num_samples"]),
            0,
        )
    progress = message.get("progress") or {}
    return (
        int(progress.get("num_samples_loaded", 0)),
        int(progress.get("num_samples", 0)),
        int(progress.get("loaded_bytes", 0)),
    )


def _scanned(message: Dict[str, Any]) -> Optional[int]:
    """Returns the entries scanned while the number of samples is unknown, else
    None; None also for messages without content, sent while the daemon is
    silent."""
    if "num_samples_scanned" in message:
        is_scanning, counts = not int(message["num_samples"]), message
    else:
        counts = message.get("progress") or {}
        is_scanning = counts.get("is_scanning", False)
    count = int(counts.get("num_entries_scanned", 0))
    return count if is_scanning and count else None


class TqdmProgress:
    """A tqdm bar, which computes rate and remaining time."""

    def __init__(self, tqdm: Any, name: str) -> None:
        self._bar = tqdm(desc=f"loading {name}", unit="sample", total=None)

    def __call__(self, message: Dict[str, Any]) -> None:
        scanned = _scanned(message)
        if scanned is not None:
            self._bar.set_postfix_str(f"scanning, {scanned} entries")
            return
        done, total, loaded = _position(message)
        if not total:
            return
        self._bar.total = total
        self._bar.set_postfix_str(
            f"{loaded / 1e6:.1f} MB" if loaded else "", refresh=False
        )
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class LineProgress:
    """One line that is rewritten."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = ""

    def __call__(self, message: Dict[str, Any]) -> None:
        scanned = _scanned(message)
        if scanned is not None:
            self._show(f"loading {self._name}: scanning, {scanned} entries")
            return
        done, total, loaded = _position(message)
        if not total:
            return
        progress = message.get("progress") or {}
        share = f"{100 * done // total:3d} %"
        text = f"loading {self._name}: {share}, {done}/{total} samples"
        if loaded:
            text += f", {loaded / 1e6:.1f} MB"
        rate = float(progress.get("samples_per_second", 0))
        eta = float(progress.get("eta_seconds", 0))
        if rate:
            text += f", {rate:.0f} samples/s"
        if eta:
            text += f", {eta:.0f} s left"
        self._show(text)

    def _show(self, text: str) -> None:
        if text != self._text:
            sys.stderr.write("\r" + text.ljust(len(self._text)))
            sys.stderr.flush()
            self._text = text

    def close(self) -> None:
        if self._text:
            sys.stderr.write("\n")


def make_progress(name: str) -> Union[TqdmProgress, LineProgress]:
    """Returns a TqdmProgress if tqdm is installed, else a LineProgress."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return LineProgress(name)
    return TqdmProgress(tqdm, name)
