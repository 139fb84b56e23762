"""The self-test's verdicts: on a GPU machine nothing passes by skipping."""

import os
import pathlib
import sys
import tempfile
import unittest

from tests.selftest import datasetd_selftest as selftest


def judged(num_run, num_skipped, may_skip, result="ok"):
    step = {"result": result, "why": ""}
    selftest.judge(step, num_run, num_skipped, "no GPU", may_skip)
    return step


class SelftestTest(unittest.TestCase):
    def test_a_skip_fails_where_there_is_a_gpu(self):
        self.assertEqual(judged(5, 1, may_skip=False)["result"], "FAILED")
        self.assertEqual(judged(0, 29, may_skip=False)["result"], "FAILED")
        self.assertEqual(judged(5, 0, may_skip=False)["result"], "ok")

    def test_without_a_gpu_a_skip_says_why(self):
        step = judged(5, 1, may_skip=True)
        self.assertEqual((step["result"], step["why"]),
                         ("ok", "1 skipped: no GPU"))
        self.assertEqual(judged(0, 29, may_skip=True)["result"], "skipped")

    def test_running_nothing_and_failing_fail(self):
        for may_skip in (False, True):
            self.assertEqual(judged(0, 0, may_skip)["result"], "FAILED")
            self.assertEqual(
                judged(9, 0, may_skip, result="FAILED")["result"], "FAILED")

    def part(self):
        return selftest.Part("tests", "cpu", dict(os.environ))

    def test_a_step_tells_its_end(self):
        part = self.part()
        good = part.run("good", [sys.executable, "-c", "print('said')"], 60)
        self.assertEqual((good["result"], good["output"]), ("ok", "said\n"))
        bad = part.run("bad", [sys.executable, "-c", "raise SystemExit(3)"],
                       60)
        self.assertEqual((bad["result"], bad["why"]),
                         ("FAILED", "ended with 3"))
        absent = part.run("absent", ["/nonexistent"], 60)
        self.assertEqual(absent["result"], "FAILED")
        self.assertEqual(part.steps, [good, bad, absent])

    def test_a_step_past_its_deadline_ends_with_its_children(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_inheritable(writer, True)
        real_popen = selftest.subprocess.Popen
        selftest.subprocess.Popen = (
            lambda *a, **k: real_popen(*a, pass_fds=[writer], **k))
        try:
            step = self.part().run(
                "endless", ["sh", "-c", "tail -f /dev/null & wait"], 0.5)
        finally:
            selftest.subprocess.Popen = real_popen
        os.close(writer)
        self.assertEqual(step["result"], "FAILED")
        self.assertIn("not done", step["why"])
        # The end of the file comes when the last process that could write to
        # it is gone.
        self.assertEqual(os.read(reader, 1), b"")

    def test_a_part_whose_time_is_up_runs_nothing(self):
        part = self.part()
        part.end = 0
        step = part.run("late", [sys.executable, "-c", ""], 60)
        self.assertEqual((step["result"], step["why"]),
                         ("not run", "the part's time is up"))

    def test_a_question_has_an_answer_or_the_reason_why_not(self):
        report = {
            "steps": [
                {"name": "a_test", "result": "ok", "why": ""},
                {"name": "b_test", "result": "FAILED", "why": "ended with 1"}],
            "probes": {"one": {"x": {"y": 1}},
                       "other": {"not_measured": "no root"}}}

        def answer(source):
            return selftest.answer_question(report, source)

        self.assertEqual(answer(["a_test", "b_test"]),
                         ({"a_test": "ok", "b_test": "FAILED"}, ""))
        self.assertEqual(answer(["b_test"]),
                         (None, "b_test: FAILED: ended with 1"))
        self.assertEqual(answer(["c_test"]),
                         (None, "the tests were not asked for"))
        self.assertEqual(answer(("one", "x")), ({"y": 1}, ""))
        self.assertEqual(answer(("one", "z")),
                         (None, "one was not asked for it"))
        self.assertEqual(answer(("other", "x")), (None, "no root"))
        del report["probes"]
        self.assertEqual(answer(("one", "x")),
                         (None, "the probes were not asked for"))

    def test_the_direct_probe_keeps_the_answers_that_it_had(self):
        with tempfile.TemporaryDirectory() as directory:
            parts = pathlib.Path(directory)
            self.addCleanup(setattr, selftest, "PARTS", selftest.PARTS)
            selftest.PARTS = parts
            answer = selftest.run_direct_probe(self.part(), None)
            self.assertIn("without the toolkit", answer["not_measured"])
            (parts / "direct_plan").touch()
            script = parts / "direct_probe.py"
            script.write_text("raise SystemExit('no torch')")
            part = self.part()
            answer = selftest.run_direct_probe(part, None)
            self.assertIn("no torch", answer["not_measured"])
            script.write_text(
                "import sys\nopen(sys.argv[2], 'w').write('{\"steps\": {}}')\n"
                "raise SystemExit(1)")
            self.assertEqual(selftest.run_direct_probe(part, None),
                             {"steps": {}})
            self.assertEqual([step["result"] for step in part.steps],
                             ["FAILED", "FAILED"])
        self.assertEqual(selftest.run_direct_probe(part, "no GPU"),
                         {"not_measured": "no GPU"})

    def test_the_last_line_of_json_is_the_answer(self):
        self.assertEqual(
            selftest.read_json({"output": 'x\n{"a": 1}\nwarning: y\n'}),
            {"a": 1})
        self.assertEqual(selftest.read_json({"output": "nothing\n"}), {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
