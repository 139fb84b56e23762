"""Draws a comparison's JSON as PNG files beside it.

    plot.py compare.json

One file for rates by workload (one job), one for rates by number of jobs.
"""

import json
import os
import sys

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError:
    pyplot = None


def _rate(row):
    return row.get("median", {}).get("samples_per_second")


def _rates(groups, path):
    groups = [g for g in groups if g["jobs"] == min(h["jobs"] for h in groups)]
    names = list(dict.fromkeys(p for g in groups for p in g["rows"]
                               if _rate(g["rows"][p])))
    figure, axes = pyplot.subplots(figsize=(10, 4.5), layout="constrained")
    width = 0.8 / max(len(names), 1)
    for i, name in enumerate(names):
        points = [(x, _rate(g["rows"].get(name, {})))
                  for x, g in enumerate(groups)]
        points = [(x, rate) for x, rate in points if rate]
        axes.bar([x + (i - (len(names) - 1) / 2) * width for x, _ in points],
                 [rate for _, rate in points], width, label=name)
    axes.set_yscale("log")
    axes.set_ylabel("samples/s")
    axes.set_xticks(range(len(groups)), [g["workload"] for g in groups])
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _jobs(groups, path):
    names = list(dict.fromkeys(g["workload"] for g in groups))
    figure, all_axes = pyplot.subplots(
        1, len(names), figsize=(3.4 * len(names), 3.6), squeeze=False,
        layout="constrained")
    for axes, workload in zip(all_axes[0], names):
        own = [g for g in groups if g["workload"] == workload]
        for peer in own[0]["rows"]:
            points = [(g["jobs"], _rate(g["rows"].get(peer, {})))
                      for g in own]
            points = [p for p in points if p[1]]
            if points:
                axes.plot(*zip(*points), marker="o", label=peer)
        axes.set_yscale("log")
        axes.set_title(workload)
        axes.set_xlabel("jobs at once")
        axes.grid(alpha=0.3)
    all_axes[0][0].set_ylabel("samples/s, all jobs")
    all_axes[0][-1].legend(fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def draw(path):
    """Writes the PNG files for the JSON file at `path`."""
    if pyplot is None:
        print("not drawn: install python3-matplotlib")
        return
    with open(path, encoding="utf-8") as file:
        groups = json.load(file)["results"]["groups"]
    stem = os.path.splitext(path)[0]
    _rates(groups, stem + "_rates.png")
    _jobs(groups, stem + "_jobs.png")
    print(f"drawn to {stem}_rates.png and {stem}_jobs.png")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    draw(sys.argv[1])
