"""The parity table; run, it prints docs/parity.md's."""

import colour_rows
from row import TORCHVISION

ROWS = colour_rows.ROWS


def row_id(row):
    return f"{row.op}({row.parameters})".replace(" ", "_")


def _bound(row):
    parts = []
    if "uint8" in row.dtypes:
        parts.append(
            "exact" if row.uint8_levels == 0 else f"{row.uint8_levels:g}/255"
        )
    else:
        parts.append("-")
    if "float32" in row.dtypes:
        parts.append(
            "exact" if row.float32_bound == 0 else f"{row.float32_bound:g}"
        )
    else:
        parts.append("-")
    return parts


def markdown():
    lines = [
        "| op | parameters | uint8 | float32 | judge | remark |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in ROWS:
        uint8, float32 = _bound(row)
        judge = "torchvision 0.14" if row.judge == TORCHVISION else "formula"
        lines.append(
            f"| {row.op} | {row.parameters} | {uint8} | {float32} | {judge} | "
            f"{row.remark} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
