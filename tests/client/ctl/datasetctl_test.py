"""datasetctl against a daemon on the host backend, as a user runs it."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from tests.testing import daemon_harness
from tests.testing.daemon_harness import poll_until, runfile

CTL = runfile("client/ctl/datasetctl")
SAMPLES = 40
# Words that a command line may hold, and a program that prints its own.
WORDS = ["[1,2]", "[]", "{}", "%%", "", "--", "--json", "[a]"]
SHOW = "import json, sys; print(json.dumps(sys.argv[1:]), flush=True)"


def ignore_children():
    """For preexec_fn: as some supervisors start their commands."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


# Grey, of 2 x 1 pixels.
TINY_BMP = bytes.fromhex(
    "424d3a00000000000000360000002800000002000000010000000100180000000000"
    "00000000000000000000000000000000000000000505050909090000")


class DatasetctlTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Some commands are the package's.
        daemon_harness.use_python_package()
        cls.daemon = daemon_harness.Daemon()
        cls.data = os.path.join(cls.daemon.data_root, "cifar")
        cls.planes, _ = daemon_harness.write_cifar10_test(cls.data, SAMPLES)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def setUp(self):
        self.directory = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, self.directory)

    def ctl(self, *arguments, code=0, address=None, variables=None, **kwargs):
        """Runs it, checks the exit code; returns (stdout, stderr)."""
        environment = dict(
            os.environ, DATASETD_ADDRESS=address or self.daemon.socket_path,
            **(variables or {}))
        done = subprocess.run(
            [CTL, *arguments], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=60, cwd=self.directory, **kwargs)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def json(self, *arguments):
        return json.loads(self.ctl("--json", *arguments)[0])

    def load(self, name="d"):
        return self.json("load", name, "--format", "cifar10", "--path",
                         self.data, "--split", "test")

    # -- Looking -------------------------------------------------------------

    def test_status_names_the_daemon_and_its_devices(self):
        status = self.json("status")
        self.assertEqual(status["pid"], self.daemon.pid)
        self.assertEqual([d["name"] for d in status["devices"]], ["cpu"])
        text, _ = self.ctl("status")
        self.assertIn(f"pid {self.daemon.pid}", text)
        self.assertIn("cifar10", text)

    def test_load_list_describe_unload(self):
        loaded = self.load("one")
        self.assertEqual(loaded["state"], "DATASET_STATE_READY")
        self.assertEqual(loaded["num_samples"], str(SAMPLES))
        # It stays when the command has ended.
        listed = self.json("datasets")["datasets"]
        self.assertIn("one", [d["name"] for d in listed])
        described = self.json("datasets", "one")
        self.assertEqual(described["content_hash"], loaded["content_hash"])
        text, _ = self.ctl("datasets")
        self.assertIn("one", text)
        text, _ = self.ctl("datasets", "one")
        self.assertIn("image uint8 [32, 32, 3]", text)
        self.assertEqual(self.json("unload", "one"), {})
        listed = self.json("datasets")["datasets"]
        self.assertNotIn("one", [d["name"] for d in listed])

    def test_load_hidden_from_others_and_never_evicted(self):
        loaded = self.json("load", "kept", "--format", "cifar10", "--path",
                           self.data, "--split", "test", "--private", "--pin")
        self.assertEqual((loaded["is_private"], loaded["is_pinned"]),
                         (True, True))
        text, _ = self.ctl("datasets", "kept")
        self.assertIn("hidden from other users", text)
        self.assertIn("never evicted", text)
        self.load("open")
        text, _ = self.ctl("datasets", "open")
        self.assertNotIn("hidden", text)
        self.assertNotIn("evicted", text)
        for name in ("kept", "open"):
            self.ctl("unload", name)

    def test_load_with_the_classes_of_another(self):
        root = os.path.join(self.daemon.data_root, "pets")
        for path in ("train/a/1", "train/b/1", "val/b/1"):
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            with open(os.path.join(root, path + ".bmp"), "wb") as file:
                file.write(TINY_BMP)
        load = ("--format", "image_folder", "--path", root, "--split")
        text, errors = self.ctl("load", "train", *load, "train")
        self.assertIn("datasetctl: warning: 'train' and 'val' beside it have "
                      "other classes", errors)
        self.assertIn("image_folder: 2 samples, 2 classes ['a', 'b']; 'train' "
                      "and", text)
        for classes in ("a,b", "@train"):
            text, errors = self.ctl("load", "val", *load, "val",
                                    f"--classes={classes}")
            self.assertNotIn("warning", errors)
            line = ("image_folder: 1 sample, 2 classes ['a', 'b']; no sample "
                    "of class 'a'")
            self.assertIn(line, text)
            self.assertIn(line, self.ctl("datasets", "val")[0])
        text, _ = self.ctl("load", "x", *load, "val", "--classes=a,b",
                           "--dry_run")
        self.assertIn("note          no sample of class 'a'", text)
        _, errors = self.ctl("load", "x", *load, "train", "--classes=a",
                             code=1)
        self.assertIn("class 'b' is not one of the 1 class names", errors)
        text, _ = self.ctl("load", "x", *load, "train", "--classes=a",
                           "--ignore_other_classes")
        self.assertIn("left out: 1 sample of classes", text)
        for name in ("train", "val", "x"):
            self.ctl("unload", name)

    def test_feeds_shows_a_job_until_it_ends(self):
        import datasetd

        self.load("fed")
        with self.daemon.connect() as client:
            loader = datasetd.DataLoader(
                client.get_dataset("fed"), batch_size=8, seed=5, name="job",
                framework="numpy")
            feed, = self.json("feeds")["feeds"]
            self.assertEqual((feed["name"], feed["seed"]), ("job", "5"))
            self.assertEqual(feed["pid"], os.getpid())
            text, _ = self.ctl("feeds")
            self.assertIn("job", text)
            _, error = self.ctl("unload", "fed", code=1)
            self.assertIn("fed", error)
            self.ctl("unload", "fed", "--force")
            with self.assertRaises(datasetd.DatasetUnloaded):
                while True:
                    for _ in loader:
                        pass
            loader.close()
        poll_until(lambda: not self.json("feeds")["feeds"], "the feed is gone")

    def test_a_mistyped_command(self):
        _, error = self.ctl("stats", code=2)
        self.assertIn("datasetctl: there is no command 'stats': did you mean "
                      "'status'? There are status, datasets, load", error)
        _, error = self.ctl("--address", "/x", "frobnicate", code=2)
        self.assertIn("no command 'frobnicate'. There are status", error)
        _, error = self.ctl("--json", "dataset", code=2)
        self.assertIn("did you mean 'datasets'?",
                      json.loads(error)["error"]["message"])
        for words in (["status"], ["status", "status"]):
            _, error = self.ctl("--address=", *words, code=2)
            self.assertIn("--address= has no value", error)
        _, error = self.ctl(code=2)
        self.assertIn("A subcommand is required", error)
        _, error = self.ctl("unload", code=2)
        self.assertIn("name is required", error)

    # -- Measuring -----------------------------------------------------------

    def bench(self, program, *options, code=0, **kwargs):
        return self.ctl(*options, "bench", "--steps", "2", "--rounds", "1",
                        "--", sys.executable, "-c", program, code=code,
                        **kwargs)

    def test_bench_says_what_share_of_a_step_is_data(self):
        self.load("benched")
        program = (
            "import datasetd\n"
            "client = datasetd.connect()\n"
            "data = client.get_dataset('benched')\n"
            "loader = datasetd.DataLoader(data, batch_size=5,"
            " framework='numpy')\n"
            "while True:\n"
            "    for images, labels in loader:\n"
            "        print('a step')\n")
        out, error = self.bench(program, "--json")
        report, = json.loads(out)
        self.assertEqual((report["dataset"], report["batch_size"]),
                         ("benched", 5))
        self.assertEqual(len(report["loader_rounds"]), 1)
        self.assertIn("a step", error)
        out, _ = self.bench(program)
        self.assertRegex(out, r"WITH A CONSTANT BATCH")
        self.assertRegex(out, r"benched +5 +[0-9.]+ ms")
        # How DATA can be more than WAITED.
        self.assertRegex(out, r"(?s)WAITED is the part .* the rest is")

    def test_bench_runs_the_words_as_they_are(self):
        _, error = self.ctl("bench", "--", sys.executable, "-c", SHOW, *WORDS,
                            code=1)
        self.assertEqual(json.loads(error.splitlines()[0]), WORDS)
        _, error = self.ctl("bench", "true", code=2)
        self.assertIn("expected -- COMMAND, with its arguments", error)

    def test_bench_below_zero_is_not_measurable(self):
        report = {"pid": 7, "dataset": "noisy", "batch_size": 5,
                  "loader_seconds": 0.147, "constant_seconds": 0.1666,
                  "waited_seconds": 0.0}
        for share, shown in ((-0.134, "not measurable"), (0.25, "25.0%")):
            program = (
                "import os\n"
                "path = os.environ['DATASETD_BENCH_DIRECTORY'] + '/1.json'\n"
                f"open(path, 'w').write({json.dumps({**report, 'data_share': share})!r})")
            out, _ = self.bench(program)
            self.assertRegex(out, rf"noisy .* {shown}\n")

    def test_bench_says_that_nothing_was_measured(self):
        _, error = self.bench("raise SystemExit(3)", code=1)
        self.assertIn("ended with code 3 before anything was measured", error)
        _, error = self.ctl("bench", "--", "/no/such", code=1)
        self.assertIn("cannot start /no/such", error)

    def test_bench_says_that_there_is_no_temporary_directory(self):
        _, error = self.ctl("bench", "--", "true", code=1,
                            variables={"TMPDIR": "/dev/null"})
        self.assertRegex(
            error, "^datasetctl: no temporary directory can be made as "
            "/dev/null/datasetd-.*; set TMPDIR: Not a directory\n$")

    def test_bench_awaits_its_command_where_sigchld_is_ignored(self):
        _, error = self.bench("raise SystemExit(3)", code=1,
                              preexec_fn=ignore_children)
        self.assertIn("ended with code 3 before anything was measured", error)

    def test_relative_path_is_made_absolute_by_the_client(self):
        os.symlink(self.data, os.path.join(self.directory, "link"))
        relative = os.path.relpath(self.data, self.directory)
        self.ctl("load", "relative", "--format", "cifar10", "--path", relative,
                 "--split", "test")
        self.assertEqual(self.json("datasets", "relative")["path"], self.data)

    def test_load_shows_plain_lines_without_a_terminal(self):
        out, error = self.ctl("load", "plain", "--format", "cifar10", "--path",
                              self.data, "--split", "test")
        self.assertIn(f"{SAMPLES}/{SAMPLES} samples", error)
        self.assertNotIn("\r", error)
        self.assertNotIn("\x1b", error)
        self.assertIn("plain: ready on cpu", out)

    def test_load_shows_a_bar_on_a_terminal(self):
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            try:
                subprocess.run(
                    [CTL, "--address", self.daemon.socket_path, "load", "bar",
                     "--format", "cifar10", "--path", self.data, "--split",
                     "test"],
                    stdout=subprocess.DEVNULL, stderr=theirs, check=True,
                    timeout=60)
            finally:
                os.close(theirs)
            shown = terminal.read(65536).decode()
        self.assertIn("\rbar  [########################] 100%", shown)

    # -- Errors --------------------------------------------------------------

    def test_refusals_are_1_and_say_why(self):
        for arguments, words in [
            (("load", "x", "--format", "nope", "--path", self.data),
             ["nope", "cifar10"]),
            (("load", "x", "--format", "cifar10", "--path",
              self.daemon.data_root + "/none"), ["none", "no such file or directory"]),
            (("load", "x", "--format", "cifar10", "--path", "/"), ["/"]),
            (("datasets", "x"), ["'x'"]),
            (("unload", "x"), ["'x'"]),
            (("preview", "x"), ["'x'"]),
        ]:
            out, error = self.ctl(*arguments, code=1)
            self.assertEqual(out, "")
            for word in words:
                self.assertIn(word, error, arguments)

    def test_wrong_command_lines_are_2(self):
        for arguments in [
            (), ("nope",), ("load",), ("load", "x"), ("status", "--nope"),
            ("unload",), ("preview",), ("run",), ("run", "true", "-x"),
            ("load", "x", "--format", "cifar10", "--path", "/",
             "--option", "no-equals-sign"),
        ]:
            out, error = self.ctl(*arguments, code=2)
            self.assertEqual(out, "", arguments)
            self.assertNotEqual(error, "", arguments)

    def test_no_daemon_is_3_and_says_what_to_do(self):
        nowhere = os.path.join(self.directory, "d.sock")
        _, error = self.ctl("status", code=3, address=nowhere)
        for word in [self.directory, "--address", "datasetctl run"]:
            self.assertIn(word, error)
        _, error = self.ctl("--json", "status", code=3, address=nowhere)
        self.assertEqual(json.loads(error)["error"]["code"], "UNAVAILABLE")

    def test_errors_of_every_command_are_json_if_asked(self):
        nowhere = os.path.join(self.directory, "d.sock")
        text, _ = self.ctl("--help")
        commands = re.findall(r"^  ([a-z]+) ", text.split("Subcommands:")[1],
                              re.MULTILINE)
        needed = {
            "load": ["x", "--format", "cifar10", "--path", "/"],
            "unload": ["x"], "preview": ["x"],
            "explain": ["x", "--transforms", "crop-flip"],
            "run": ["--daemon", nowhere, "--", "true"],
        }
        self.assertLessEqual(set(needed), set(commands))
        for command in commands:
            # Errors of the command line are JSON even if --json comes last.
            _, error = self.ctl(command, "--no_such_flag", "--json", code=2)
            self.assertEqual(json.loads(error)["error"]["code"],
                             "INVALID_ARGUMENT", command)
            # doctor looks for what is wrong, bench asks no daemon itself,
            # and web waits for one.
            if command in ("doctor", "bench", "web"):
                continue
            _, error = self.ctl("--json", command, *needed.get(command, []),
                                code=3, address=nowhere)
            self.assertIn("message", json.loads(error)["error"], command)

    def test_results_that_cannot_be_written_are_1(self):
        for arguments in [("status",), ("--json", "status")]:
            with open("/dev/full", "w") as full:
                done = subprocess.run(
                    [CTL, *arguments, "--address", self.daemon.socket_path],
                    stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            error = done.stderr
            if "--json" in arguments:
                error = json.loads(error)["error"]["message"]
            self.assertIn("standard output cannot be written", error)

    def test_what_is_opened_is_not_the_missing_standard_output(self):
        done = subprocess.run(
            ["sh", "-c", 'exec "$0" "$@" >&-', CTL, "datasets", "--address",
             self.daemon.socket_path],
            stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output cannot be written", done.stderr)

    def test_bench_refuses_a_report_of_another_version(self):
        program = (
            "import os\n"
            "path = os.environ['DATASETD_BENCH_DIRECTORY'] + '/1.json'\n"
            "open(path, 'w').write('{\"pid\": \"seven\"}')")
        _, error = self.bench(program, code=1)
        self.assertRegex(error, "^datasetctl: .*type must be number")

    def test_doctor_goes_on_without_a_temporary_directory(self):
        out, _ = self.ctl("doctor", code=1, variables={"TMPDIR": "/dev/null"})
        self.assertRegex(out, r"(?m)^ok +daemon ")
        self.assertRegex(out, r"(?m)^fault +sharing .*set TMPDIR")

    def test_integers_are_decimal_and_in_range(self):
        self.load("numbered")
        explain = ["explain", "numbered", "--transforms", "crop", "--seed"]
        for seed in ("-1", "18446744073709551616"):
            _, error = self.ctl(*explain, seed, code=2)
            self.assertIn(
                f"--seed: '{seed}': expected a whole number from 0 to "
                "18446744073709551615", error)
        ten = self.json(*explain, "010")
        self.assertEqual(ten, self.json(*explain, "10"))
        self.assertNotEqual(ten, self.json(*explain, "8"))
        self.json(*explain, "18446744073709551615")
        _, error = self.ctl("web", "--port", "65536", code=2)
        self.assertIn("from 0 to 65535", error)
        _, error = self.ctl("preview", "numbered", "--zoom", "010.5", code=2)
        self.assertIn("'010.5': expected a whole number", error)

    def test_json_behind_two_dashes_is_the_commands(self):
        _, error = self.ctl("run", "--nope", "--", "true", "--json", code=2)
        self.assertNotIn("{", error)

    def test_help_tells_the_exit_codes(self):
        text, _ = self.ctl("--help")
        self.assertIn("3 no daemon", text)

    # -- The commands of the package -----------------------------------------

    def test_help_tells_the_options_that_the_package_has(self):
        from datasetd.__main__ import _parser

        subparsers, = _parser()._subparsers._group_actions
        shared = {"--help", "--address", "--json"}
        for name in ("preview", "explain", "bench", "web"):
            text, _ = self.ctl(name, "--help")
            told = re.findall(
                r"^  (--\S+) [A-Z]+(?::(?:[A-Z]+(?: in \[.*?\])?|\{.*?\}))?"
                r"(?:=(\S+))?(?: REQUIRED)?"
                r"(?: |$)", text, re.MULTILINE)
            has = {",".join(action.option_strings): action.default
                   for action in subparsers.choices[name]._actions
                   if action.option_strings
                   and not shared & set(action.option_strings)}
            self.assertEqual(
                dict(told), {option: "" if default is None else str(default)
                             for option, default in has.items()}, name)

    def test_without_the_package_or_numpy(self):
        self.load("alone")
        preview = ["preview", "alone", "--epochs", "1"]
        _, error = self.ctl(*preview, code=1, variables={
            "DATASETD_PYTHON": "/nonexistent"})
        self.assertIn("'/nonexistent', which is $DATASETD_PYTHON, finds no "
                      "package `datasetd`, which makes the picture: install",
                      error)
        # A Python that has the package, and nothing that is installed.
        bare = os.path.join(self.directory, "python3")
        with open(bare, "w") as file:
            file.write('#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n')
        os.chmod(bare, 0o755)
        _, error = self.ctl(*preview, code=1,
                            variables={"DATASETD_PYTHON": bare})
        self.assertIn("made with NumPy, which this Python does not have",
                      error)
        self.ctl("explain", "alone", "--transforms", "flip",
                 variables={"DATASETD_PYTHON": bare})
        # One that has both is preferred.
        self.ctl(*preview, variables={
            "PATH": f"{self.directory}:{os.environ['PATH']}"})

    def test_the_package_beside_the_program_is_taken(self):
        """As in a release, where nobody sets PYTHONPATH."""
        self.load("beside")
        os.mkdir(os.path.join(self.directory, "bin"))
        program = shutil.copy(CTL, os.path.join(self.directory, "bin"))
        os.symlink(runfile("client/python"),
                   os.path.join(self.directory, "python"))
        environment = dict(os.environ)
        del environment["PYTHONPATH"]
        done = subprocess.run(
            [program, "--address", self.daemon.socket_path, "explain",
             "beside", "--transforms", "none"], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=60)
        self.assertEqual(done.stdout, "no ops\n", done.stderr)

    # -- explain -------------------------------------------------------------

    def test_explain_tells_what_every_op_draws(self):
        self.load("told")
        told = self.json("explain", "told", "--transforms", "crop-flip",
                         "--first", "3", "--samples", "2", "--seed", "7")
        self.assertEqual([s["index"] for s in told["samples"]], ["3", "4"])
        names = [op["name"] for op in told["samples"][0]["ops"]]
        self.assertEqual(names, ["Pad", "Crop", "HorizontalFlip"])
        again = self.json("explain", "told", "--transforms", "crop-flip",
                          "--first", "4", "--seed", "7")
        self.assertEqual(again["samples"], told["samples"][1:])
        text, _ = self.ctl("explain", "told", "--transforms", "crop-flip")
        self.assertRegex(text, r"SAMPLE +PLACE +OP +APPLIED +DRAWN")
        self.assertRegex(text, r"0 +image\[0\] +Crop +yes +top \d+, left \d+")
        self.assertRegex(text, r"0 +image\[1\] +HorizontalFlip +(yes|no) +-")
        text, _ = self.ctl("explain", "told", "--transforms", "none")
        self.assertEqual(text, "no ops\n")

    def test_explain_says_what_is_wrong(self):
        self.load("wrong")
        _, error = self.ctl("explain", "wrong", "--transforms", "none",
                            "--windows", "blocks(0)", code=2)
        self.assertIn("length=0", error)
        _, error = self.ctl("explain", "wrong", "--transforms", "spin", code=2)
        self.assertIn("'spin'", error)
        _, error = self.ctl("explain", "wrong", "--transforms", "flip",
                            "--first", str(SAMPLES), code=1)
        self.assertIn(f"{SAMPLES} samples", error)
        _, error = self.ctl("explain", "wrong", "--transforms", "flip",
                            "--field", "depth", code=1)
        self.assertIn("'depth'", error)

    # -- preview -------------------------------------------------------------

    def read_png(self, name):
        import numpy as np
        from PIL import Image

        with Image.open(os.path.join(self.directory, name)) as image:
            self.assertEqual(image.mode, "RGB")
            return np.array(image)

    def test_preview_shows_originals_and_every_epoch(self):
        import numpy as np

        self.load("shown")
        result = self.json("preview", "shown", "--samples", "3", "--first",
                           "4", "--epochs", "4", "--zoom", "1", "--transforms",
                           "altflip", "--output", "a.png")
        sheet = self.read_png("a.png")
        self.assertEqual(sheet.shape, (result["height"], result["width"], 3))
        self.assertEqual(result["output"],
                         os.path.join(self.directory, "a.png"))
        for row in range(3):
            original = self.planes[4 + row].transpose(1, 2, 0)
            top = 4 + row * 36
            np.testing.assert_array_equal(
                sheet[top:top + 32, 4:36], original)
            flips = []
            for column in range(4):
                left = 52 + column * 36
                cell = sheet[top:top + 32, left:left + 32]
                is_flipped = bool((cell == original[:, ::-1]).all())
                self.assertTrue(is_flipped or (cell == original).all())
                flips.append(is_flipped)
            self.assertEqual(flips, [flips[0], not flips[0]] * 2)

    def test_preview_is_a_function_of_seed_and_epoch(self):
        self.load("seeded")
        sheets = {}
        for name, flags in {
            "a": ["--seed", "1"],
            "again": ["--seed", "1"],
            "other": ["--seed", "2"],
            "later": ["--seed", "1", "--epoch", "1"],
        }.items():
            self.ctl("preview", "seeded", "--epochs", "3", "--zoom", "1",
                     "--output", name + ".png", *flags)
            sheets[name] = self.read_png(name + ".png")
        self.assertTrue((sheets["a"] == sheets["again"]).all())
        self.assertFalse((sheets["a"] == sheets["other"]).all())
        # The second epoch of one is the first of the other.
        self.assertTrue(
            (sheets["a"][:, 88:120] == sheets["later"][:, 52:84]).all())

    def test_preview_leaves_number_ops_out_and_says_so(self):
        self.load("numbers")
        ops = [{"center_crop": {"height": 8, "width": 10}},
               {"to_dtype": {"dtype": "DTYPE_FLOAT32", "scale": True}},
               {"normalize": {"mean": [0.5], "std": [0.5]}}]
        path = os.path.join(self.directory, "ops.json")
        with open(path, "w") as file:
            json.dump(ops, file)
        text, _ = self.ctl("preview", "numbers", "--transforms", "@" + path)
        self.assertIn("to_dtype, normalize", text)
        self.read_png("preview.png")

    def test_preview_undoes_number_ops_before_others(self):
        import numpy as np

        self.load("between")
        ops = [{"to_dtype": {"dtype": "DTYPE_FLOAT16", "scale": True}},
               {"normalize": {"mean": [0.4, 0.5, 0.6], "std": [0.2]}},
               {"erase": {"height": 4, "width": 32, "value": [0]}}]
        ops[1]["normalize"]["std"] *= 3
        self.json("preview", "between", "--transforms", json.dumps(ops),
                  "--zoom", "1", "--samples", "1", "--epochs", "1", "--output",
                  "between.png")
        cell = self.read_png("between.png")[4:36, 52:84]
        original = self.planes[0].transpose(1, 2, 0)
        np.testing.assert_array_equal(cell[4:], original[4:])
        # 0 is the mean, after Normalize.
        self.assertTrue((cell[:4] == [102, 128, 153]).all(), cell[0, 0])

    def test_preview_to_a_file_whose_name_is_not_utf8(self):
        self.load("named")
        result = self.json("preview", "named", "--samples", "1", "--epochs",
                           "1", "--output", b"a\xff.png")
        self.assertEqual(os.path.basename(result["output"]), "a\ufffd.png")
        self.assertEqual(os.listdir(os.fsencode(self.directory)),
                         [b"a\xff.png"])

    def test_preview_of_floats(self):
        import numpy as np

        folder = os.path.join(self.daemon.data_root, "floats")
        os.makedirs(folder)
        levels = np.arange(3 * 8 * 8 * 3).reshape(3, 8, 8, 3) % 256
        np.save(os.path.join(folder, "image.npy"),
                (levels / 255).astype(np.float32))
        self.ctl("load", "floats", "--format", "npy", "--path", folder)
        self.json("preview", "floats", "--transforms", "none", "--zoom", "1",
                  "--epochs", "1", "--output", "f.png")
        np.testing.assert_array_equal(
            self.read_png("f.png")[4:12, 4:12], levels[0])

    def test_preview_of_grey_images(self):
        import numpy as np

        folder = os.path.join(self.daemon.data_root, "grey")
        os.makedirs(folder)
        grey = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28)
        np.save(os.path.join(folder, "image.npy"), grey)
        self.ctl("load", "grey", "--format", "npy", "--path", folder)
        # Eight rows are asked for; there are five.
        result = self.json("preview", "grey", "--transforms", "none", "--zoom",
                           "1", "--epochs", "1", "--output", "g.png")
        self.assertEqual(result["num_samples"], 5)
        sheet = self.read_png("g.png")
        for channel in range(3):
            np.testing.assert_array_equal(sheet[4:32, 4:32, channel], grey[0])

    # -- run -----------------------------------------------------------------

    def test_version_is_the_daemons(self):
        daemons = subprocess.run(
            [runfile("server/datasetd"), "--version"], text=True,
            stdout=subprocess.PIPE, check=True, timeout=60).stdout
        self.assertRegex(daemons, r"^datasetd \d+\.\d+\.\d+\n$")
        self.assertEqual(self.ctl("--version")[0],
                         daemons.replace("datasetd", "datasetctl"))
        self.assertIn("--version", self.ctl("--help")[0])

    def run_private(self, *command, flags=(), code=0, **kwargs):
        environment = dict(os.environ, TMPDIR=self.directory)
        done = subprocess.run(
            [CTL, "run", "--daemon", runfile("server/datasetd"), "--device",
             "cpu", *flags, "--", *command],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, timeout=60, **kwargs)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_run_gives_the_command_a_daemon_and_removes_it(self):
        done = self.run_private(CTL, "--json", "status")
        status = json.loads(done.stdout)
        self.assertNotEqual(status["pid"], self.daemon.pid)
        self.assertFalse(daemon_harness.is_running(status["pid"]))
        self.assertEqual(os.listdir(self.directory), [])

    def test_run_ends_as_the_command_does(self):
        self.run_private("sh", "-c", "exit 42", code=42)
        self.run_private("sh", "-c", "kill -KILL $$", code=137)
        self.run_private("/nonexistent/command", code=127)
        done = self.run_private("echo", "--json", "--", "-x")
        self.assertEqual(done.stdout, "--json -- -x\n")
        self.assertEqual(os.listdir(self.directory), [])

    def test_run_runs_the_words_as_they_are(self):
        done = self.run_private(sys.executable, "-c", SHOW, *WORDS)
        self.assertEqual(json.loads(done.stdout), WORDS)
        for words in (["true"], ["[1,2]"], ["--"], ["true", "--", "true"]):
            _, error = self.ctl("run", *words, code=2)
            self.assertIn("expected -- COMMAND, with its arguments", error)

    def test_run_does_not_read_a_log_that_is_a_pipe(self):
        log = os.path.join(self.directory, "log")
        os.mkfifo(log)
        # With a writer, so that a read of it would wait.
        pipe = os.open(log, os.O_RDWR)
        self.addCleanup(os.close, pipe)
        done = subprocess.run(
            [CTL, "run", "--daemon", runfile("server/datasetd"), "--device",
             "cuda:7", "--daemon_log", log, "--", "true"],
            env=dict(os.environ, TMPDIR=self.directory),
            stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(f"ended with code 1: see {log}\n", done.stderr)

    def test_run_shows_the_end_of_a_long_log(self):
        daemon = os.path.join(self.directory, "daemon")
        with open(daemon, "w") as file:
            file.write("#!/bin/sh\necho first\nseq 10000\necho last\n")
        os.chmod(daemon, 0o755)
        done = subprocess.run(
            [CTL, "run", "--daemon", daemon, "--", "true"],
            env=dict(os.environ, TMPDIR=self.directory),
            stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"10000\s+last\n$")
        self.assertNotIn("first", done.stderr)
        self.assertLess(len(done.stderr), 2300)

    def test_run_leaves_an_ignored_signal_ignored(self):
        """As nohup does, also while the daemon starts."""
        gate = os.path.join(self.directory, "gate")
        os.mkfifo(gate)
        # Open for both, so that an end of `run` is not waited for.
        opened = os.open(gate, os.O_RDWR)
        self.addCleanup(os.close, opened)
        daemon = os.path.join(self.directory, "daemon")
        with open(daemon, "w") as file:
            file.write(f"#!/bin/sh\necho >{daemon}.started\nread x <{gate}\n"
                       f'exec {runfile("server/datasetd")} "$@"\n')
        os.chmod(daemon, 0o755)
        process = subprocess.Popen(
            [CTL, "run", "--daemon", daemon, "--device", "cpu", "--", "sh",
             "-c", "kill -HUP $PPID; kill -HUP $$; echo ran"],
            env=dict(os.environ, TMPDIR=self.directory), text=True,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        poll_until(lambda: os.path.exists(f"{daemon}.started"), "the start")
        process.send_signal(signal.SIGHUP)
        os.write(opened, b"go\n")
        self.assertEqual(process.communicate(timeout=60)[0], "ran\n")
        self.assertEqual(process.returncode, 0)

    def test_run_awaits_its_command_where_sigchld_is_ignored(self):
        self.run_private("sh", "-c", "exit 42", code=42,
                         preexec_fn=ignore_children)
        self.assertEqual(os.listdir(self.directory), [])

    def test_run_socket_is_this_users_alone(self):
        done = self.run_private(
            "sh", "-c", 'stat -c %a "$(dirname "$DATASETD_ADDRESS")"')
        self.assertEqual(done.stdout, "700\n")

    def test_run_without_a_daemon_is_3(self):
        environment = dict(os.environ, TMPDIR=self.directory)
        for daemon, words in [
            ("/nonexistent/datasetd", ["/nonexistent/datasetd", "--daemon"]),
            (shutil.which("false"), ["ended with code 1", "printed nothing"]),
            (shutil.which("true"), ["ended with code 0", "printed nothing"]),
        ]:
            done = subprocess.run(
                [CTL, "run", "--daemon", daemon, "--", "true"],
                env=environment, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 3, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr)
        self.assertEqual(os.listdir(self.directory), [])

    def test_run_in_a_temporary_directory_with_a_long_path(self):
        long = os.path.join(self.directory, "x" * 100)
        os.mkdir(long)
        done = subprocess.run(
            [CTL, "run", "--daemon", runfile("server/datasetd"), "--device",
             "cpu", "--", "sh", "-c", "echo $DATASETD_ADDRESS"],
            env=dict(os.environ, TMPDIR=long), stdout=subprocess.PIPE,
            text=True, timeout=60, check=True)
        self.assertRegex(done.stdout, "^/tmp/datasetd-job-[^/]*/datasetd.sock")
        self.assertFalse(os.path.exists(os.path.dirname(done.stdout)))
        self.assertEqual(os.listdir(long), [])

    def test_run_reads_below_its_data_roots_only(self):
        load = [CTL, "load", "x", "--format", "cifar10", "--path", self.data,
                "--split", "test"]
        self.run_private(*load, flags=["--data_root", self.data])
        self.run_private(*load, flags=["--data_root", self.directory], code=1)
        done = self.run_private("true", flags=["--data_root", ""], code=2)
        self.assertIn("--data_root '': Invalid argument; name a directory",
                      done.stderr)

    def start_private(self, script):
        """datasetctl run of a shell script that prints, then waits."""
        process = subprocess.Popen(
            [CTL, "run", "--daemon", runfile("server/datasetd"), "--device",
             "cpu", "--", "sh", "-c", script],
            env=dict(os.environ, TMPDIR=self.directory), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_run_forwards_signals(self):
        process = self.start_private(
            'trap "exit 9" TERM; echo ready; while :; do read x || :; done')
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 9)
        self.assertEqual(os.listdir(self.directory), [])

    def test_killed_run_leaves_no_daemon(self):
        process = self.start_private(
            f'{CTL} --json status; echo end; read x')
        text = ""
        while not text.endswith("end\n"):
            line = process.stdout.readline()
            self.assertTrue(line, process.stderr)
            text += line
        pid = json.loads(text[:-4])["pid"]
        process.kill()
        daemon_harness.await_end(pid)

    def test_run_tells_when_the_daemon_dies(self):
        process = self.start_private(
            f"{CTL} --json status; echo end; read x; exit 5")
        text = ""
        while not text.endswith("end\n"):
            line = process.stdout.readline()
            self.assertTrue(line, process.stderr)
            text += line
        os.kill(json.loads(text[:-4])["pid"], signal.SIGKILL)
        # With the end of its log.
        self.assertRegex(process.stderr.readline(),
                         r"^datasetctl: the daemon has ended \(.*device cpu")
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.wait(60), 5)


if __name__ == "__main__":
    unittest.main()
