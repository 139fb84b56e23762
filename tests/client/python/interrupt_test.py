"""KeyboardInterrupt may be raised wherever Python looks for signals: nothing is
lost or kept by it."""

import contextlib
import dis
import gc
import os
import signal
import sys
import threading

import datasetd
import numpy as np
import pytest
from conftest import load, poll_until, stop
from datasetd._connection import library

_PACKAGE = os.path.dirname(datasetd.__file__)


# Behind these CPython 3.11 looks for signals: where a function begins, behind a
# call, and in a loop.
_LOOKS = ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD")


@contextlib.contextmanager
def interrupted_at(step):
    """KeyboardInterrupt where Python looks for signals for the step-th time
    within the package. Yields a function that says whether it came to that."""
    left = step
    before = {}  # by frame: the opcode that ran last

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        if frame.f_code.co_name == "__del__":
            return None  # Python ignores what is raised there
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= before.get(frame) in _LOOKS
            before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if left == 0:
                left = -1
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield lambda: left < 0
    finally:
        sys.settrace(None)
        before.clear()


def every_step(stride=1):
    return range(1, 100_000, stride)


def test_interrupted_next_of_a_sampler_keeps_its_place(dataset):
    order = list(reversed(range(60)))
    with datasetd.DataLoader(
        dataset, batch_size=10, sampler=order, framework="numpy"
    ) as loader:
        for step in every_step():
            iterator = iter(loader)
            next(iterator)
            with interrupted_at(step) as came, contextlib.suppress(
                KeyboardInterrupt
            ):
                next(iterator)
            try:
                for batch in iterator:
                    assert batch.indices[0] == 59 - 10 * batch.index, step
                    state = loader.state_dict()
                    if batch.index < 5:
                        assert state["batch"] == batch.index + 1, step
                        assert state["row"] == 10 * state["batch"], step
                assert batch.index == 5, step
            except datasetd.FailedPrecondition as error:
                assert "the sampler was interrupted" in str(error), step
            if not came():
                break
        assert step > 10


def test_an_interrupted_opening_is_made_up_for(dataset, monkeypatch):
    """A state with another seed opens the feed anew."""
    with datasetd.DataLoader(
        dataset, batch_size=10, shuffle=True, framework="numpy"
    ) as loader, datasetd.DataLoader(
        dataset, batch_size=10, shuffle=True, seed=5, framework="numpy"
    ) as other:
        loader.load_state_dict(dict(loader.state_dict(), seed=5))
        feed = type(loader._newest)
        open_feed = feed._open

        def interrupt(_):
            monkeypatch.setattr(feed, "_open", open_feed)
            raise KeyboardInterrupt

        monkeypatch.setattr(feed, "_open", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        for ours, theirs in zip(loader, other):
            np.testing.assert_array_equal(ours.indices, theirs.indices)


FRAMEWORKS = ["torch", "numpy", "dlpack"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_interrupted_next_keeps_no_slot(dataset, framework):
    with datasetd.DataLoader(
        dataset,
        batch_size=1,
        framework=framework,
        prefetch=1,
        on_held="error",
    ) as loader:
        for step in every_step():
            iterator = None
            iterator = iter(loader)
            next(iterator)
            with interrupted_at(step) as came, contextlib.suppress(
                KeyboardInterrupt
            ):
                next(iterator)
            # Whatever was interrupted: these are the next ones, all three
            # slots can be held, and a fourth one is refused.
            batches = [next(iterator) for _ in range(3)]
            first = batches[0].index
            assert [batch.index - first for batch in batches] == [0, 1, 2]
            for batch in batches:
                image, label = map(np.from_dlpack, batch)
                assert label[0] == batch.index == image[0, 0, 0, 0], step
                del image, label
            with pytest.raises(datasetd.AllSlotsHeld) as error:
                next(iterator)
            del batches, batch, error
            if not came():
                assert first == 2
                break
            # 2 where the interrupt came behind the batch's last step.
            assert first in (1, 2)
        assert step > 10


def test_no_step_of_a_callback_ends_those_after_it():
    for step in every_step():
        raised = []
        callback = library.catching(lambda _: None, raised)
        with interrupted_at(step) as came:
            for _ in range(4):
                callback(None)
        assert callback(None) == 0
        if not came():
            break
        assert [type(error) for error in raised] == [KeyboardInterrupt]
    assert step > 4


def test_interrupted_open_leaves_no_feed(dataset, client):
    # There are about a thousand steps. Only --full tries all of them.
    is_full = os.environ.get("DATASETD_TEST_FULL") == "1"
    for step in every_step(1 if is_full else 29):
        try:
            with interrupted_at(step) as came:
                loader = datasetd.DataLoader(
                    dataset, batch_size=10, framework="numpy", prefetch=1
                )
        except KeyboardInterrupt:
            gc.collect()
        if not came():
            loader.close()
            break
    assert step > 100
    poll_until(lambda: not client.list_feeds(), "no feed is left")


def test_ctrl_c_in_a_wait_loses_no_batch(data_root):
    """The signal comes together with the batch that was waited for."""
    with datasetd.start_local(device="cpu", data_roots=data_root) as daemon:
        dataset = load(daemon.connect(), data_root)
        with datasetd.DataLoader(
            dataset, batch_size=1, framework="numpy", prefetch=1
        ) as loader:
            iterator = iter(loader)
            seen = []
            num_interrupts = 0

            def interrupt():
                started.wait()
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(daemon.pid, signal.SIGCONT)

            while len(iterator):
                stop(daemon)
                started = threading.Event()
                thread = threading.Thread(target=interrupt)
                thread.start()
                try:
                    started.set()
                    # At most three are ready; then it waits.
                    for batch in iterator:
                        # Not of an array: NumPy may let signals in.
                        seen.append(batch.index)
                        del batch
                except KeyboardInterrupt:
                    num_interrupts += 1
                while True:
                    try:
                        thread.join()
                        break
                    except KeyboardInterrupt:
                        num_interrupts += 1
            assert seen == list(range(len(loader)))
            assert num_interrupts > 0
