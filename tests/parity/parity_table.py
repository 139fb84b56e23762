"""The parity table; run, it prints docs/parity.md's."""

import affine_rows
import batch_rows
import chain_rows
import colour_rows
import drawn_rows
import geometry_rows
import number_rows
import perspective_rows
import policy_rows
from row import TORCHVISION

ROWS = (
    geometry_rows.ROWS
    + affine_rows.ROWS
    + colour_rows.ROWS
    + number_rows.ROWS
    + drawn_rows.ROWS
    + perspective_rows.ROWS
    + policy_rows.ROWS
    + chain_rows.ROWS
    + batch_rows.ROWS
)


def row_id(row):
    return f"{row.op}({row.parameters})".replace(" ", "_")


def _bound(row):
    """Returns the bounds of uint8 and of float32, as text."""
    if row.uint8_levels is None:
        return "chain", "chain"
    if row.bound_text:
        return row.bound_text, row.bound_text
    uint8 = "exact" if row.uint8_levels == 0 else f"{row.uint8_levels:g}/255"
    float32 = (
        "exact" if row.float32_bound == 0 else f"{row.float32_bound:g}"
    )
    return (
        uint8 if "uint8" in row.dtypes else "-",
        float32 if "float32" in row.dtypes else "-",
    )


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
