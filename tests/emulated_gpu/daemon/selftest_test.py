"""datasetd-selftest as it is in the release, with an emulated GPU: it answers
the questions that have an answer there, and says why of the others."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

from tests.testing import daemon_harness as harness

_SELFTEST = "tests/selftest"


def _make_release(root):
    """The files of the release that its probes use, in their places."""
    places = {
        "bin/datasetd": "server/datasetd",
        "python/datasetd/libdatasetd.so": "client/c_api/libdatasetd.so",
        "libexec/datasetd/cuda_probe": f"{_SELFTEST}/cuda_probe",
        "libexec/datasetd/probes.py": f"{_SELFTEST}/probes.py",
        "libexec/datasetd/sharing_probe.py": f"{_SELFTEST}/sharing_probe.py",
    }
    shutil.copytree(harness.runfile("client/python/datasetd"),
                    root / "python" / "datasetd")
    for place, source in places.items():
        target = root / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(os.path.abspath(harness.runfile(source)))
    (root / "COMMIT").write_text("unknown\n")
    program = root / "bin" / "datasetd-selftest"
    shutil.copy(harness.runfile(f"{_SELFTEST}/datasetd_selftest.py"), program)
    return program


def _run(tmp_path, *arguments, **environment):
    program = _make_release(tmp_path / "release")
    report = tmp_path / "report.json"
    # sharing_probe's daemon has a user of its own, who must find the driver.
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        driver = shutil.copytree(os.environ["LD_LIBRARY_PATH"],
                                 os.path.join(place, "driver"))
        done = subprocess.run(
            [sys.executable, program, "--require_gpu", "--no_timing", "--json",
             report, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=280, check=False,
            env=dict(os.environ, LD_LIBRARY_PATH=driver, **environment))
    return done, (json.loads(report.read_text()) if report.exists() else None)


def test_the_probes_answer(tmp_path):
    done, report = _run(tmp_path, "--only", "probes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["device"] == "cuda:0" and report["result"] == "ok"
    questions = {row["name"]: row for row in report["questions"]}
    assert len(questions) == 13
    for row in questions.values():
        assert (row["answer"] is None) == bool(row["why_not"]), row
        # One line each.
        [line] = [line for line in done.stdout.splitlines()
                  if line.startswith(f"{row['name']}: {row['question']}")]
        assert ("not answered" in line) == (row["answer"] is None)
    answered = {name for name, row in questions.items()
                if row["answer"] is not None}
    assert {"start", "release", "free"} <= answered
    assert questions["trainer"]["why_not"] == "left out by --no_timing"
    for name in ("kernels", "capture", "sizes", "read_only"):
        assert "not asked for" in questions[name]["why_not"]
    if os.geteuid() == 0:
        sharing = questions["sharing"]["answer"]
        assert sharing["cuda_vmm_fd"]["pid_namespace"] == "took a batch"
        assert "cuIpcOpenMemHandle" in (
            sharing["cuda_ipc_handle"]["pid_namespace"])


def test_without_a_gpu_it_fails(tmp_path):
    done, report = _run(tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1 and report is None
    assert "--require_gpu, but" in done.stderr


if __name__ == "__main__":
    harness.main(__file__)
