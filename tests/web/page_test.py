"""The page in a real browser, with real jobs on a real daemon."""

import base64
import io
import json
import os
import tarfile
import time
import urllib.request

import numpy as np
import pytest
from PIL import Image

from tests.testing import daemon_harness as harness
from tests.web.chromium import Chromium
from tests.web.web_harness import Web, job

harness.use_python_package()

import datasetd  # noqa: E402
from datasetd import transforms as T  # noqa: E402

_SENTENCE_SECONDS = 3.0
_HOSTILE = (
    "<img src=x onerror=window.hacked=1>\"'&amp;<script>window.hacked=1"
    "</script>\u202egnp.exe\u0007\x1b[31m\u200b\u05d0\u05d1")


@pytest.fixture(scope="module")
def browser():
    with Chromium() as browser:
        yield browser


@pytest.fixture
def daemon():
    with harness.Daemon() as daemon:
        yield daemon


def _load_cifar(daemon, client, name="cifar", num_samples=200):
    path = os.path.join(daemon.data_root, name)
    planes, labels = harness.write_cifar10_test(path, num_samples)
    names = "\n".join(f"class{i}" for i in range(10))
    with open(os.path.join(path, "batches.meta.txt"), "w") as file:
        file.write(names + "\n")
    dataset = client.load_dataset(name, format="cifar10", split="test",
                                  path=path)
    return dataset, planes, labels


def _open(browser, web, **state):
    browser.events.clear()
    browser.open(web.page(**state) if state else web.url)


def _no_complaints(browser):
    assert browser.run("window.hacked === undefined")
    assert browser.errors() == []


def _sentence(browser, part, timeout=30.0):
    """Waits for a sentence that holds a text; returns the job's level."""
    return browser.wait(
        "(() => { const node = [...document.querySelectorAll('.job')].find("
        "(job) => job.querySelector('.sentence').textContent.includes("
        f"{json.dumps(part)})); return node && node.className; }})()",
        f"a sentence with {part!r}", timeout).split()[-1]


# -- Jobs ---------------------------------------------------------------------


def test_jobs_one_slowed_one_killed(browser, daemon):
    with daemon.connect() as client:
        _load_cifar(daemon, client)
        with Web(daemon.socket_path) as web, \
                job(daemon.socket_path, "cifar",
                    loaders=[{"name": "steady"}]) as steady, \
                job(daemon.socket_path, "cifar",
                    loaders=[{"name": "changing"}], pause=0.05) as changing:
            _open(browser, web)
            for worker, name in ((steady, "steady"), (changing, "changing")):
                _sentence(browser, f"“{name}” ({worker.pid}) waits")
            browser.wait(
                "document.querySelectorAll('.job.green').length === 2")
            # The last seconds' p50 and p99 of each loader.
            browser.wait(
                "[...document.querySelectorAll('.job tbody tr')].every((row) "
                "=> [6, 7].every((i) => /^\\d+ (\u00b5s|ms|s)$/.test("
                "row.cells[i].innerText)))", "the hand-over of both")
            # The daemon stops making batches: both wait.
            daemon.stop()
            try:
                browser.wait(
                    "document.querySelector('#banner').textContent.includes("
                    "'has not answered')", timeout=30)
            finally:
                daemon.process.send_signal(18)
            browser.wait("document.querySelector('#banner').textContent === ''")
            # Killed: it leaves the list, and is named among the ended.
            changing.kill()
            changing.wait()
            browser.wait(
                "document.querySelector('#ended').textContent.includes("
                f"'changing of process {changing.pid}')",
                timeout=_SENTENCE_SECONDS + 2)
            assert len(browser.texts(".job")) == 1
            _sentence(browser, f"({steady.pid}) waits")
            browser.wait("document.querySelector('.job.green') !== null")
            _no_complaints(browser)


def test_the_sentence_changes_within_three_seconds(browser):
    # One thread: batches of slow transforms take longer than the job's steps.
    with harness.Daemon(host_threads=1) as daemon, daemon.connect() as client:
        _load_cifar(daemon, client)
        slow = {"transforms": "slow", "batch_size": 8, "prefetch": 2}
        with Web(daemon.socket_path) as web, \
                job(daemon.socket_path, "cifar", loaders=[slow],
                    pause=0.4) as worker:
            _open(browser, web)
            _sentence(browser, f"({worker.pid}) waits")
            browser.wait("document.querySelector('.job.green') !== null")
            worker.tell(pause=0.0)
            _wait_for_level(browser, "red")
            browser.wait("document.querySelector('.job .advice').innerText"
                         ".includes('host_threads')")
            assert browser.text(".job .badge") == "waits"
            assert browser.run("document.title").startswith("(waits)")
            assert "% of its time for data" in browser.text("#announcement")
            worker.tell(pause=0.4)
            _wait_for_level(browser, "green")
            _no_complaints(browser)


def _wait_for_level(browser, level):
    """The job's level, within the time that is promised."""
    start = time.monotonic()
    browser.wait(f"document.querySelector('.job.{level}') !== null",
                 f"the sentence turns {level}", _SENTENCE_SECONDS + 2)
    assert time.monotonic() - start <= _SENTENCE_SECONDS + 0.5


def test_64_loaders(browser, daemon):
    with daemon.connect() as client:
        _load_cifar(daemon, client)
        loaders = [{"rank": i, "world_size": 64, "seed": 1, "batch_size": 2,
                    "prefetch": 1} for i in range(64)]
        with Web(daemon.socket_path) as web, \
                job(daemon.socket_path, "cifar", loaders=loaders) as worker:
            _open(browser, web)
            _sentence(browser, f"({worker.pid})")
            browser.wait("document.querySelectorAll('.job tbody tr').length "
                         "=== 64")
            browser.wait("!document.querySelector('.job tbody').innerText"
                         ".includes('-\\t-')")
            rows = [row.split("\t") for row in
                    browser.texts(".job tbody tr")]
            assert sorted(int(row[0]) for row in rows) == list(range(64))
            state = web.ask("state", window=60)
            waits = [one["rate"]["job_wait"]
                     for one in state["jobs"][0]["loaders"]]
            assert waits == sorted(waits, reverse=True)
            _no_complaints(browser)


# -- Samples ------------------------------------------------------------------


def _pixels(url):
    return np.asarray(Image.open(io.BytesIO(
        urllib.request.urlopen(url).read())))


def test_samples_of_a_running_job(browser, daemon):
    with daemon.connect() as client:
        dataset, planes, labels = _load_cifar(daemon, client)
        transforms = [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(),
                      T.ToDtype("float32", scale=True),
                      T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))]
        with Web(daemon.socket_path) as web, \
                job(daemon.socket_path, "cifar",
                    loaders=[{"name": "seen", "seed": 5}]) as worker:
            _open(browser, web)
            _sentence(browser, f"({worker.pid})")
            browser.click(".job tbody button")
            browser.wait("document.querySelectorAll('#grid li').length === 8")
            assert browser.run("document.querySelector('#seed').value") == "5"
            browser.fill("#first", "40")
            browser.fill("#epoch", "3")
            browser.wait("document.querySelector('#grid strong').textContent "
                         "=== 'Sample 40'")
            assert browser.run("decodeURIComponent(location.hash)").startswith(
                "#dataset=cifar&source=feed:")
            assert "token" not in browser.run("location.href")
            feed_id = browser.run("document.querySelector('#source').value")
            answer = web.ask("samples", dataset="cifar", first=40, count=8,
                             epoch=3, seed=5, feed=feed_id.split(":")[1])
            # As a job gets them, by the public interface.
            crops = transforms[:2]
            expected = client.fetch(dataset, range(40, 48), crops, seed=5,
                                    epoch=3, framework="numpy")
            drawn = client.explain(dataset, transforms, seed=5, epoch=3,
                                   indices=range(40, 48))
            for i, sample in enumerate(answer["samples"]):
                index = sample["index"]
                original = _pixels(sample["original"]["image"]["url"])
                assert (original == planes[index].transpose(1, 2, 0)).all()
                augmented = _pixels(sample["augmented"]["image"]["url"])
                assert (augmented == expected.image[i].transpose(
                    1, 2, 0)).all()
                assert sample["original"]["label"]["value"] == labels[index]
                assert [(op["name"], op["is_applied"])
                        for op in sample["ops"]] == [
                    (op.name, op.is_applied) for op in drawn[i]]
            del expected
            # A click shows each op that was drawn, and Escape goes back.
            browser.click("#grid li:nth-child(2) button")
            browser.wait("document.querySelector('#detail').open")
            assert "Sample 41, epoch 3, seed 5" in browser.text("#detail")
            rows = browser.texts("#detail tbody tr")
            assert len(rows) == len(drawn[1])
            for row, op in zip(rows, drawn[1]):
                assert op.name in row
                for name in op.parameters:
                    assert f"{name} = " in row
            browser.press("Escape", virtual=27)
            browser.wait("!document.querySelector('#detail').open")
            _no_complaints(browser)


def test_the_state_is_in_the_address(browser, daemon):
    pasted = json.dumps([{"random_crop": {
        "height": 16, "width": 16, "padding_mode": "reflect"}}])
    with daemon.connect() as client:
        _load_cifar(daemon, client)
        with Web(daemon.socket_path) as web:
            _open(browser, web, dataset="cifar", source="pasted",
                  pasted=pasted, first="8", count="4", epoch="2", seed="9",
                  sample="10", window="10")
            browser.wait("document.querySelector('#detail').open")
            assert "Sample 10, epoch 2, seed 9" in browser.text("#detail")
            assert "Crop" in browser.text("#detail tbody")
            assert len(browser.texts("#grid li")) == 4
            assert "16×16×3" in browser.text("#grid")
            assert browser.run("document.querySelector('#window').value") == (
                "10")
            link = browser.run("location.href")
            assert "token" not in link
            # The link alone opens the same in another tab of this browser.
            browser.open(link)
            browser.wait("document.querySelector('#detail').open")
            _no_complaints(browser)


def test_masks_numbers_and_lines(browser, daemon):
    random = np.random.default_rng(3)
    images = random.integers(0, 256, (6, 20, 24, 3), np.uint8)
    masks = np.zeros((6, 20, 24), np.uint8)
    masks[:, 5:10, 4:12] = 2
    with daemon.connect() as client:
        dataset = client.push_dataset("seg", {
            "image": images, "mask": masks,
            "signal": np.sin(np.arange(6 * 300).reshape(6, 300)).astype(
                np.float32),
            "grid": random.normal(size=(6, 3, 5)).astype(np.float32),
            "age": np.arange(6, dtype=np.float32),
        }, fields={"image": "image", "mask": "mask", "signal": "array",
                   "grid": "array", "age": "array"})
        ops = [T.RandomHorizontalFlip(1.0, fields=["image", "mask"])]
        with Web(daemon.socket_path) as web, datasetd.DataLoader(
                dataset, batch_size=2, transforms=ops, framework="numpy",
                name="flips") as loader:
            next(iter(loader))
            feed_id = client.list_feeds()[0]["feed_id"]
            answer = web.ask("samples", dataset="seg", feed=feed_id)
            sample = answer["samples"][4]
            for side, mask in (("original", masks[4]),
                               ("augmented", masks[4][:, ::-1])):
                overlay = _pixels(sample[side]["mask"]["url"])
                assert ((overlay[:, :, 3] > 0) == (mask == 2)).all()
                assert sample[side]["mask"]["classes"] == [0, 2]
            assert sample["original"]["age"] == {"kind": "number",
                                                 "value": 4.0}
            line = sample["original"]["signal"]
            assert line["kind"] == "line" and len(line["points"]) <= 256
            assert min(line["points"]) == line["least"]
            assert max(line["points"]) == line["largest"]
            assert sample["original"]["grid"]["shape"] == [3, 5]
            _open(browser, web, dataset="seg", source=f"feed:{feed_id}")
            browser.wait("document.querySelectorAll('#grid li').length === 6")
            assert browser.run(
                "document.querySelectorAll('#grid .picture img.mask').length"
            ) == 12
            assert browser.run(
                "document.querySelectorAll('#grid svg.line').length") == 12
            visible = ("document.querySelector('#grid img.mask')"
                       ".checkVisibility()")
            assert browser.run(visible)
            browser.click("#masks")
            assert not browser.run(visible)
            _no_complaints(browser)


def test_windows_and_their_spectrograms(browser, daemon):
    wave = np.random.default_rng(2).standard_normal(3000, np.float32)
    with daemon.connect() as client:
        dataset = client.push_dataset("waves", {"x": wave})
        ops = [T.MelSpectrogram(n_fft=64, n_mels=16), T.TimeMasking(4)]
        with Web(daemon.socket_path) as web, datasetd.DataLoader(
                dataset, 4, windows=datasetd.blocks(200), framework="numpy",
                transforms={"x": ops}):
            feed_id = client.list_feeds()[0]["feed_id"]
            _open(browser, web, dataset="waves", source=f"feed:{feed_id}")
            browser.wait("document.querySelectorAll('#grid li').length === 8")
            assert browser.texts("#grid li strong")[:2] == [
                "Window at step 0", "Window at step 200"]
            for kind in ("svg.line", ".picture img"):
                assert browser.run(
                    f"document.querySelectorAll('#grid {kind}').length") == 8
            assert not browser.run(
                "document.querySelector('#windows').checkVisibility()")
            browser.click("#grid li button")
            browser.wait("document.querySelector('#detail').open")
            drawn = browser.text("#detail-body table")
            assert "start = 0; length = 200" in drawn
            assert "mask_start" in drawn or "TimeMasking" in drawn
            _open(browser, web, dataset="waves", source="none")
            browser.wait("document.querySelectorAll('#grid li').length === 8")
            assert browser.texts("#grid li strong")[1] == "Sample 1"
            browser.fill("#windows", "random_windows(300)")
            browser.wait("document.querySelector('#grid strong').textContent "
                         "=== 'Random window 0'")
            assert "10 windows in an epoch" in browser.text("#samples-about")
            browser.fill("#windows", "blocks(")
            browser.wait("document.querySelector('#samples-error').textContent"
                         ".includes('random_windows(length)')")
            _no_complaints(browser)


def test_images_of_several_sizes(browser, daemon):
    random = np.random.default_rng(4)
    images = [random.integers(0, 256, (h, w, 3), np.uint8)
              for h, w in ((10, 20), (30, 12), (25, 25))]
    with daemon.connect() as client, Web(daemon.socket_path) as web:
        client.push_dataset(
            "ragged", [(image, i) for i, image in enumerate(images)],
            fields={"image": "image", "label": "array"}, ragged=True)
        answer = web.ask("samples", dataset="ragged", transforms=json.dumps(
            [{"resize": {"size": {"height": 8, "width": 8}}}]))
        for sample, image in zip(answer["samples"], images):
            shown = _pixels(sample["original"]["image"]["url"])
            assert (shown == image).all()
            assert sample["augmented"]["image"]["size"] == [8, 8, 3]


def test_samples_of_the_running_loader_come_first(browser, daemon):
    """Not those of the first dataset; and what was chosen stays."""
    with daemon.connect() as client, Web(daemon.socket_path) as web:
        held = [_load_cifar(daemon, client, name)[0] for name in ("a", "z")]
        _open(browser, web)
        shown = "document.querySelector('#dataset').value"
        browser.wait(f"{shown} === 'a'")
        with job(daemon.socket_path, "z", loaders=[{"seed": 7}]):
            browser.wait(f"{shown} === 'z'")
            browser.wait("document.querySelector('#samples-about')"
                         ".textContent.includes('random_crop')")
            assert browser.run("document.querySelector('#seed').value") == "7"
            _open(browser, web, dataset="a")
            browser.wait("document.querySelector('#samples-about')"
                         ".textContent.includes('No transforms')")
            assert browser.run(shown) == "a"
        del held


def test_bad_samples(browser, daemon):
    folder = os.path.join(daemon.data_root, "photos", "a")
    os.makedirs(folder)
    for i in range(4):
        Image.new("RGB", (16, 16), (60 * i, 0, 0)).save(
            os.path.join(folder, f"{i}.jpg"))
    path = os.path.join(folder, "1.jpg")
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(content[:len(content) // 2])
    with open(os.path.join(folder, "2.jpg"), "wb") as file:
        file.write(b"no picture")
    with daemon.connect() as client, Web(daemon.socket_path) as web:
        client.load_dataset(
            "photos", format="image_folder", bad_samples="skip",
            path=os.path.join(daemon.data_root, "photos"))
        _open(browser, web, dataset="photos")
        browser.wait("!document.querySelector('#bad').hidden")
        browser.click("#bad summary")
        browser.wait("document.querySelectorAll('#bad-list tr').length === 2")
        text = browser.text("#bad-list")
        assert "1.jpg" in text and "2.jpg" in text
        browser.click("#bad-list tr:nth-child(1) button")
        browser.wait("document.querySelector('#bad-list tr:nth-child(1) "
                     ".bad-picture').querySelector('img') !== null || "
                     "document.querySelector('#bad-list').innerText.includes("
                     "'cannot decode')")
        browser.click("#bad-list tr:nth-child(2) button")
        browser.wait("document.querySelector('#bad-list').innerText.includes("
                     "'does not begin as')")
        _no_complaints(browser)


def test_bad_samples_within_archives(daemon):
    """The picture is cut out of a tar file, also a compressed one."""
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(
        0, 256, (24, 24, 3), np.uint8)).save(buffer, "JPEG")
    whole = buffer.getvalue()
    damaged = whole[:len(whole) // 3]
    for suffix in ("", ".gz"):
        directory = os.path.join(daemon.data_root, "tar" + suffix)
        os.makedirs(directory)
        with tarfile.open(os.path.join(directory, "0.tar" + suffix),
                          "w:" + suffix[1:]) as archive:
            for i in range(3):
                for ending, content in (
                        ("jpg", damaged if i == 1 else whole),
                        ("cls", str(i).encode())):
                    member = tarfile.TarInfo(f"{i:03}.{ending}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    with daemon.connect() as client, Web(daemon.socket_path) as web:
        for name, format, path in (
                ("tar", "webdataset", "tar/0.tar"),
                ("shards", "webdataset", "tar/{0..0}.tar"),
                ("tar.gz", "webdataset", "tar.gz/0.tar.gz")):
            client.load_dataset(
                name, format=format, bad_samples="skip",
                path=os.path.join(daemon.data_root, path))
            url = web.ask("bad_picture", name=name, position=0)["url"]
            kind, content = url.split(";base64,")
            assert kind == "data:image/jpeg"
            assert base64.b64decode(content) == damaged
        # A size below 0, as a hostile archive may have.
        with client.get_dataset("tar") as dataset:
            offset = dataset.bad_samples[0].offset
        header = tarfile.TarInfo("a")
        header.size = -1
        with open(os.path.join(daemon.data_root, "tar/0.tar"), "r+b") as file:
            file.seek(offset - tarfile.BLOCKSIZE)
            file.write(header.tobuf(tarfile.GNU_FORMAT))
        assert "the size is -1" in web.refusal(
            "bad_picture", name="tar", position=0)[2]
        # Changed since they were loaded.
        for path in ("tar/0.tar", "tar.gz/0.tar.gz"):
            os.truncate(os.path.join(daemon.data_root, path), 100)
        for name in ("tar", "tar.gz"):
            assert web.refusal("bad_picture", name=name, position=0)[0] >= 400


# -- Memory, loads, health ----------------------------------------------------


def test_memory_and_dry_run(browser, daemon):
    with daemon.connect() as client:
        _load_cifar(daemon, client, num_samples=1000)
        path = os.path.join(daemon.data_root, "cifar")
        with Web(daemon.socket_path) as web:
            _open(browser, web)
            browser.wait("document.querySelector('#devices h3') !== null")
            device = client.status()["devices"][0]
            assert int(device["dataset_bytes"]) >= 3072 * 1000
            text = browser.text("#devices")
            assert "datasets 2.9 MiB" in text or "datasets 3" in text, text
            assert "free" in text and "scratch" in text and "slabs" in text
            browser.wait(
                "document.querySelector('#e-format').options.length > 3")
            browser.run("document.querySelector('#estimate-card').open = true")
            browser.fill("#e-format", "cifar10")
            browser.fill("#e-path", path)
            browser.fill("#e-split", "test")
            browser.click("#estimate-form button[type=submit]")
            browser.wait("document.querySelector('#estimate').innerText"
                         ".includes('It would fit')")
            text = browser.text("#estimate")
            estimate = client.load_dataset(
                "other", "cifar10", path, split="test", dry_run=True)
            assert "1,000 samples" in text
            assert f"{estimate.resident_bytes / 2**20:.1f} MiB" in text
            assert [d["name"] for d in client.list_datasets()] == ["cifar"]
            browser.fill("#e-path", "/etc")
            browser.click("#estimate-form button[type=submit]")
            browser.wait("document.querySelector('#estimate-error').innerText"
                         ".includes('/etc')")
            _no_complaints(browser)


_PUSH = """
client = datasetd.connect(ADDRESS)
class Samples:
    def __len__(self):
        return 100
    def __getitem__(self, i):
        if i == 50:
            say(at=i)
            hear()
        return np.full((256, 256, 3), i, np.uint8)
client.push_dataset("slow", Samples(), fields=["image"])
say(done=True)
hear()
"""


def test_a_load_in_progress(browser, daemon):
    with harness.Worker(_PUSH, daemon.socket_path) as worker, \
            Web(daemon.socket_path) as web:
        assert worker.hear()["at"] == 50
        _open(browser, web)
        browser.wait("document.querySelector('.load') !== null")
        text = browser.wait(
            "(document.querySelector('.load p')?.innerText ?? '').includes("
            "'done in about') && document.querySelector('.load').innerText")
        assert "slow" in text and "of 100 samples" in text, text
        assert 0 < browser.run(
            "document.querySelector('.load progress').value") <= 50
        worker.tell()
        assert worker.hear()["done"]
        browser.wait("document.querySelector('.load') === null")
        browser.wait("document.querySelector('#dataset-list').innerText"
                     ".includes('ready')")
        _no_complaints(browser)


def test_health(browser, daemon):
    with daemon.connect() as client, Web(
            daemon.socket_path, environment={
                "PATH": os.path.dirname(harness.runfile(
                    "client/ctl/datasetctl")) + ":" + os.environ["PATH"]}
            ) as web:
        with pytest.raises(datasetd.Error):
            client.load_dataset("x", format="npy", path=os.path.join(
                daemon.data_root, "missing"))
        _open(browser, web)
        browser.wait("document.querySelectorAll('#findings tr').length > 0")
        rows = browser.texts("#findings tr")
        assert any("daemon" in row and f"process {daemon.pid}" in row
                   for row in rows), rows
        assert daemon.log_path in browser.text("#log-note")
        with open(daemon.log_path, "a") as log:
            log.write("2026-01-02T03:04:05.678Z warn [load] it was <b>cold</b>"
                      "\n2026-01-02T03:04:05.678Z info [load] all is well\n")
        browser.click("#check")
        browser.wait("document.querySelector('#log').innerText.includes("
                     "'<b>cold</b>')")
        assert "all is well" not in browser.text("#log")
        _no_complaints(browser)


def test_the_daemon_ends_and_comes_back(browser, daemon):
    with daemon.connect() as client:
        _load_cifar(daemon, client)
    with Web(daemon.socket_path) as web:
        _open(browser, web)
        browser.wait("document.querySelector('#daemon').innerText.includes("
                     f"'process {daemon.pid}')")
        daemon.kill()
        browser.wait("document.querySelector('#banner').innerText.includes("
                     "'There is no daemon')", timeout=5)
        assert web.refusal("dataset", name="cifar")[0] == 503
        daemon.start()
        browser.wait("document.querySelector('#banner').innerText === ''",
                     timeout=10)
        browser.wait("document.querySelector('#daemon').innerText.includes("
                     f"'process {daemon.pid}')")
        assert "is back" in browser.text("#announcement")
        _no_complaints(browser)


def test_it_starts_without_a_daemon_and_says_so_when_it_ends(browser, daemon):
    daemon.kill()
    with Web(daemon.socket_path) as web:
        _open(browser, web)
        browser.wait("document.querySelector('#banner').innerText.includes("
                     "'There is no daemon')")
        web.process.kill()
        web.process.wait()
        browser.wait("document.querySelector('#banner').innerText.includes("
                     "'server has ended')", timeout=10)


def test_a_wrong_token_in_the_address(browser, daemon):
    with Web(daemon.socket_path) as web:
        browser.open(f"http://127.0.0.1:{web.port}/#token=wrong")
        browser.wait("document.querySelector('#banner').innerText.includes("
                     "'token')")


def test_another_page_learns_nothing(browser, daemon):
    """A page of another origin, in the same browser, which has the token."""
    with daemon.connect() as client, Web(daemon.socket_path) as web, \
            Web(daemon.socket_path) as other:
        _load_cifar(daemon, client)
        _open(browser, web)
        browser.wait("document.querySelector('#daemon').innerText !== ''")
        _open(browser, other)
        browser.wait("document.querySelector('#daemon').innerText !== ''")
        # Its policy is taken away, so that the answer is the other server's.
        browser.call("Page.setBypassCSP", enabled=True)
        try:
            _open(browser, other)
            for mode in ("cors", "no-cors"):
                assert browser.run(
                    f"fetch('http://127.0.0.1:{web.port}/api/state', "
                    f"{{mode: '{mode}'}}).then((answer) => answer.type + "
                    "answer.status, (error) => 'refused')") in (
                        "refused", "opaque0")
            # The token of one server is not sent to the other.
            assert browser.run(
                "localStorage.getItem('datasetd-token')") == other.token
        finally:
            browser.call("Page.setBypassCSP", enabled=False)


# -- Names, sizes, people -----------------------------------------------------


def test_hostile_names(browser, daemon):
    long_name = "n" * 1000 + _HOSTILE
    images = np.zeros((12, 8, 8, 3), np.uint8)
    labels = np.arange(12) % 3
    name = _HOSTILE[:128]
    with daemon.connect() as client:
        dataset = client.push_dataset(
            "hostile", {"image": images, "label": labels},
            class_names=[_HOSTILE, long_name, "plain"])
        with Web(daemon.socket_path) as web, datasetd.DataLoader(
                dataset, batch_size=2, framework="numpy", name=name,
                transforms=[T.RandomHorizontalFlip()]) as loader:
            next(iter(loader))
            _open(browser, web, dataset="hostile",
                  filter="<b>" + _HOSTILE)
            browser.wait("document.querySelectorAll('#grid li').length === 8")
            browser.wait("document.querySelector('.job') !== null")
            # As text, with what does not show made visible.
            shown = browser.text("#grid")
            assert "<img src=x onerror=window.hacked=1>" in shown
            assert "\\u202e" in shown and "\\u0007" in shown
            for character in ("\u202e", "\x07", "\x1b", "\u200b"):
                assert character not in shown
            assert "<img src=x onerror=" in browser.text(".job")
            assert browser.run(
                "document.querySelectorAll('script').length") == 1
            assert browser.run(
                "document.querySelectorAll('img[src=x]').length") == 0
            # Nothing runs out of the window's side.
            assert browser.run(
                "document.documentElement.scrollWidth <= innerWidth")
            browser.click("#grid li button")
            browser.wait("document.querySelector('#detail').open")
            browser.run("document.querySelector('#detail').close()")
            _no_complaints(browser)


def test_a_thousand_datasets(browser):
    with harness.Daemon(max_datasets=2000) as daemon, \
            daemon.connect() as client:
        for i in range(1000):
            client.push_dataset(
                f"set-{i:04}", {"x": np.full((2, 3), i, np.int32)}).close()
        with Web(daemon.socket_path) as web:
            _open(browser, web)
            browser.wait(
                "document.querySelectorAll('#dataset-list tr').length === 1000")
            assert browser.text("#dataset-count") == "1,000 datasets"
            browser.fill("#filter", "set-099")
            browser.wait(
                "document.querySelectorAll('#dataset-list tr').length === 10")
            assert "10 of 1,000" in browser.text("#dataset-count")
            browser.click("#dataset-list tr:nth-child(3) button")
            browser.wait("document.querySelector('#grid').innerText.includes("
                         "'992, 992, 992')")
            # The list is sent when it changes, not with every look.
            state = web.ask("state")
            assert len(state["datasets"]) == 1000
            again = web.ask("state",
                            datasets_version=state["datasets_version"])
            assert "datasets" not in again
            _no_complaints(browser)


def test_refreshes_keep_nodes_focus_and_selection(browser, daemon):
    with daemon.connect() as client:
        _load_cifar(daemon, client)
        with Web(daemon.socket_path) as web, \
                job(daemon.socket_path, "cifar"):
            _open(browser, web)
            browser.wait("document.querySelector('.job tbody tr') !== null")
            browser.run(
                "window.kept = [...document.querySelectorAll('.job, .job tr, "
                "#devices > *, #dataset-list tr')]; "
                "document.querySelector('.job tbody button').focus()")
            before = browser.text(".job tbody")
            browser.wait("document.querySelector('.job tbody').innerText !== "
                         + json.dumps(before))
            assert browser.run(
                "window.kept.every((node) => node.isConnected)")
            assert browser.run("document.activeElement === "
                               "document.querySelector('.job tbody button')")


def test_keyboard_and_screen_reader(browser, daemon):
    with daemon.connect() as client:
        _load_cifar(daemon, client)
        with Web(daemon.socket_path) as web, \
                job(daemon.socket_path, "cifar"):
            _open(browser, web)
            browser.wait("document.querySelectorAll('#grid li').length === 8")
            browser.wait("document.querySelector('.job') !== null")
            # Every control has a name.
            tree = browser.call("Accessibility.getFullAXTree")["nodes"]
            roles = {}
            for node in tree:
                role = node.get("role", {}).get("value")
                name = node.get("name", {}).get("value", "")
                roles.setdefault(role, []).append(name)
            for role in ("button", "combobox", "textbox", "link", "checkbox",
                         "spinbutton", "region"):
                assert roles.get(role), role
                assert all(roles[role]), (role, roles[role])
            # Live regions are visible before they say something.
            assert browser.run(
                "[...document.querySelectorAll('[role=alert], [role=status]')]"
                ".filter((node) => !node.closest('details')).every("
                "(node) => node.checkVisibility())")
            assert roles["heading"][:2] == ["datasetd", "Who waits for whom"]
            # Tab reaches what a mouse can, in the page's order.
            reached = []
            browser.run("document.activeElement.blur()")
            for _ in range(60):
                browser.press("Tab", virtual=9)
                reached.append(browser.run(
                    "(document.activeElement.id || "
                    "document.activeElement.innerText).slice(0, 40)"))
            for wanted in ("Skip to the jobs", "Samples", "window", "samples",
                           "dataset", "source", "first", "previous", "next"):
                assert wanted in reached, (wanted, reached)
            browser.run("document.querySelector('#grid button').focus()")
            browser.press("Enter", virtual=13, text="\r")
            browser.wait("document.querySelector('#detail').open")
            assert browser.run(
                "document.querySelector('#detail').contains("
                "document.activeElement)")
            browser.press("Escape", virtual=27)
            browser.wait("!document.querySelector('#detail').open")
            assert browser.run("document.activeElement === "
                               "document.querySelector('#grid button')")


def _contrast(browser, foreground, background):
    """The ratio of two custom properties, as WCAG defines it."""
    def luminance(name):
        value = browser.run(
            "getComputedStyle(document.documentElement).getPropertyValue("
            f"'{name}').trim()")
        parts = [int(value[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
                  for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    one, other = sorted((luminance(foreground), luminance(background)))
    return (other + 0.05) / (one + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light(browser, daemon, scheme):
    with Web(daemon.socket_path) as web:
        browser.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme}])
        try:
            _open(browser, web)
            for foreground, background in (
                    ("--ink", "--paper"), ("--ink", "--card"),
                    ("--soft", "--card"), ("--soft", "--paper"),
                    ("--accent", "--paper"), ("--green", "--green-back"),
                    ("--amber", "--amber-back"), ("--red", "--red-back")):
                ratio = _contrast(browser, foreground, background)
                assert ratio >= 4.5, (foreground, background, ratio)
            dark = browser.run(
                "getComputedStyle(document.body).backgroundColor")
            assert (dark == "rgb(20, 23, 26)") == (scheme == "dark")
        finally:
            browser.call("Emulation.setEmulatedMedia", features=[])


if __name__ == "__main__":
    harness.main(__file__)
