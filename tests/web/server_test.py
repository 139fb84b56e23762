"""Access to the page's server, and the requests that it refuses."""

import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import types
from unittest import mock

import pytest

from tests.testing import daemon_harness as harness
from tests.web.web_harness import Web

harness.use_python_package()

import datasetd  # noqa: E402

_NOBODY = 65534
# Prints the status of a GET with a token, over TCP or a Unix socket, which may
# be half closed before the answer.
_GET = """
import http.client, socket, sys
host, port, path, token, *is_half_closed = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port or 80), timeout=30)
if path:
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(path)
    except PermissionError:
        print("EACCES")
        sys.exit()
connection.request("GET", "/api/state",
                   headers={"Authorization": "Bearer " + token})
if is_half_closed:
    connection.sock.shutdown(socket.SHUT_WR)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


@pytest.fixture(scope="module")
def daemon():
    with harness.Daemon() as daemon:
        daemon.write_dataset(100)
        with daemon.connect() as client:
            daemon.load(client)
            yield daemon


@pytest.fixture(scope="module")
def web(daemon):
    with Web(daemon.socket_path) as web:
        yield web


def _code(answer):
    status, _, body = answer
    return status, json.loads(body)["error"]["code"]


def test_the_token_opens_the_data(web):
    status, _, body = web.request("/api/state")
    assert status == 200
    assert json.loads(body)["daemon"]["is_there"]
    assert len(web.token) >= 43  # 256 bits


def test_the_page_itself_holds_no_data(web):
    status, headers, body = web.request("/", token=None)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert len(body) < 300_000
    assert web.token.encode() not in body
    # Nothing is fetched from elsewhere.
    for part in (b"src=\"", b"http:", b"https:", b"@import", b"url("):
        assert part not in body.replace(b"http://www.w3.org/2000/svg", b"")
    for sink in (b"innerHTML", b"outerHTML", b"insertAdjacentHTML",
                 b"document.write", b"eval(", b"srcdoc"):
        assert sink not in body


@pytest.mark.parametrize("token", [None, "", "x", "x" * 43])
@pytest.mark.parametrize(
    "path", ["/api/state", "/api/samples?dataset=d", "/api/nothing", "/x"])
def test_wrong_token(web, token, path):
    answer = web.request(path, token=token)
    assert _code(answer) == (401, "Unauthenticated")
    assert answer[1]["WWW-Authenticate"] == "Bearer"


def test_the_token_is_no_part_of_the_url(web):
    answer = web.request(f"/api/state?token={web.token}", token=None)
    assert _code(answer) == (401, "Unauthenticated")
    answer = web.request("/api/state", token=None, Cookie=f"token={web.token}")
    assert _code(answer) == (401, "Unauthenticated")


@pytest.mark.parametrize("host", [
    "evil.example", "evil.example:80", "127.0.0.1.evil.example",
    "localhost.evil.example", "127.0.0.2", "[::2]", "", "127.0.0.1:",
    "127.0.0.1 ", "127.0.0.1:80:80"])
@pytest.mark.parametrize("path", ["/", "/api/state"])
def test_foreign_host(web, host, path):
    assert _code(web.request(path, Host=host)) == (421, "PermissionDenied")


def _raw(web, lines):
    with socket.create_connection((web.host, web.port)) as connection:
        connection.sendall(f"{lines}Connection: close\r\n\r\n".encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


def test_two_hosts_or_none(web):
    for lines in ("", "Host: 127.0.0.1\r\nHost: evil.example\r\n"):
        answer = _raw(web, f"GET / HTTP/1.1\r\n{lines}")
        assert answer.startswith(b"HTTP/1.1 421 "), answer


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "[::1]:80",
                                  "127.0.0.1:65535"])
def test_loopback_by_any_port_as_ssh_forwards_it(web, host):
    assert web.request("/api/state", Host=host)[0] == 200
    assert web.request("/api/state", Host=host,
                       Origin=f"http://{host}")[0] == 200


@pytest.mark.parametrize("origin", [
    "http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1",
    "http://localhost", "file://"])
@pytest.mark.parametrize("path", ["/", "/api/state"])
def test_foreign_origin(web, origin, path):
    answer = web.request(path, Origin=origin)
    assert _code(answer) == (403, "PermissionDenied")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_foreign_site(web, site):
    assert _code(web.request("/api/state", Sec_Fetch_Site=site)) == (
        403, "PermissionDenied")
    # A link in a mail leads to the page, which holds no data.
    assert web.request("/", Sec_Fetch_Site=site)[0] == 200


@pytest.mark.parametrize("method", [
    "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods(web, method):
    status, headers, _ = web.request("/api/state", method=method)
    assert (status, headers["Allow"]) == (405, "GET")
    assert web.request("/api/state", method="BREW")[0] == 501


def test_a_target_that_is_no_url(web):
    answer = _raw(web, f"GET http://[::1/x HTTP/1.1\r\nHost: {web.host}\r\n")
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"the target is no URL: Invalid IPv6 URL" in answer


def test_headers_on_every_answer(web):
    for path, token in (("/", True), ("/api/state", True),
                        ("/api/state", None), ("/api/nothing", True)):
        headers = web.request(path, token=token)[1]
        policy = dict(part.split(" ", 1) for part in
                      headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["frame-ancestors"] == "'none'"
        assert policy["connect-src"] == "'self'"
        assert policy["img-src"] == "data:"
        for kind in ("script-src", "style-src"):
            assert policy[kind].startswith("'sha256-")
            assert "unsafe" not in policy[kind]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Server"] == "datasetd"


def test_wrong_arguments(web):
    for name, query, status in (
            ("nothing", {}, 404),
            ("dataset", {"name": "none"}, 404),
            ("samples", {"dataset": "d", "first": "-1"}, 400),
            ("samples", {"dataset": "d", "count": "65"}, 400),
            ("samples", {"dataset": "d", "seed": str(2**64)}, 400),
            ("samples", {"dataset": "d", "transforms": "["}, 400),
            ("samples", {"dataset": "d", "transforms": "[1]"}, 400),
            ("samples", {"dataset": "d", "transforms": "[" * 20000}, 400),
            ("samples", {"dataset": "d", "transforms":
                         '[{"normalize": {"mean": [NaN], "std": [0]}}]'}, 400),
            ("samples", {"dataset": "d", "transforms": '[{"warp": {}}]'}, 400),
            ("samples", {"dataset": "d", "feed": "999"}, 404),
            ("state", {"window": "1e9"}, 400),
            ("estimate", {"format": "cifar10", "path": "relative"}, 400),
            ("estimate", {"format": "cifar10", "path": "/etc"}, 403),
            ("bad_picture", {"name": "d", "position": "0"}, 404)):
        assert web.refusal(name, **query)[0] == status, (name, query)


def test_samples_of_a_dataset_whose_source_is_scanned(daemon, web):
    shards = harness.write_slow_shards(
        os.path.join(daemon.data_root, "shards"))
    is_scanned = threading.Event()

    def load():
        with daemon.connect() as client:
            with pytest.raises(datasetd.Error):
                client.load_dataset("scanned", "webdataset", shards,
                                    progress=lambda _: is_scanned.set())

    thread = threading.Thread(target=load)
    thread.start()
    try:
        assert is_scanned.wait(60)
        _, code, message = web.refusal("samples", dataset="scanned")
        assert code == "FailedPrecondition"
        assert message == "dataset 'scanned' has no samples yet"
    finally:
        with daemon.connect() as client:
            client.unload_dataset("scanned")
        thread.join()


@pytest.mark.parametrize("mean, std", [
    (0.5, 0.25), (0, 1), ("0.5", "0.25"), ([0.5], [0.25])])
def test_numbers_for_lists_of_one(web, mean, std):
    ops = [{"to_dtype": {"dtype": "float32", "scale": True}},
           {"normalize": {"mean": mean, "std": std}}]
    sample = web.ask("samples", dataset="d", count=1,
                     transforms=json.dumps(ops))["samples"][0]
    # Normalize is undone for the picture.
    assert (sample["augmented"]["image"]["url"]
            == sample["original"]["image"]["url"])


@pytest.mark.parametrize("op, full", [
    ({"auto_augment": {"policy": "cifar10"}},
     {"auto_augment": {"policy": "AUTO_AUGMENT_POLICY_CIFAR10"}}),
    ({"pad": {"padding": {"left": 9}, "paddingMode": "reflect"}},
     {"pad": {"padding": {"left": 9},
              "padding_mode": "PADDING_MODE_REFLECT"}}),
])
def test_enums_without_their_prefix(web, op, full):
    short, long = (
        web.ask("samples", dataset="d", count=4,
                transforms=json.dumps([one]))["samples"]
        for one in (op, full))
    assert short == long
    assert short[0]["augmented"] != short[0]["original"]


class _Peer:
    """A connection whose other end takes some bytes in a second of a made-up
    clock, and in all no more than `most`. It asks for the samples."""

    def __init__(self, bytes_per_second, most):
        self.taken = b""
        self._bytes_per_second = bytes_per_second
        self._most = most

    def settimeout(self, seconds):
        self._timeout = seconds

    def makefile(self, *_):
        return io.BytesIO(
            b"GET /api/samples HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Authorization: Bearer t\r\n\r\n")

    def sendall(self, data):
        """As of a socket: the timeout is that of the whole call."""
        count = min(len(data), int(self._timeout * self._bytes_per_second),
                    self._most - len(self.taken))
        self.taken += data[:count]
        if count < len(data):
            raise TimeoutError


@pytest.mark.parametrize("most", [10**9, 10**6])
def test_a_slow_reader_gets_the_whole_answer(most):
    """And one that stops is dropped."""
    from datasetd.web import _server

    answer = {"samples": "y" * 5_000_000}
    server = types.SimpleNamespace(
        token="t", page=_server.Page(),
        api=types.SimpleNamespace(answer=lambda *_: answer))
    # In the timeout of 20 s it takes 80 kB of the 5 MB.
    peer = _Peer(bytes_per_second=4_000, most=most)
    _server.Handler(peer, ("127.0.0.1", 1), server)
    if most == 10**6:
        assert len(peer.taken) == most
    else:
        head, _, body = peer.taken.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert json.loads(body) == answer


def test_what_is_asked_changes_nothing(daemon, web):
    with daemon.connect() as client:
        before = harness.Footprint(daemon, client)
        datasets = client.list_datasets()
        for name, query in (
                ("state", {}), ("dataset", {"name": "d"}), ("health", {}),
                ("samples", {"dataset": "d", "transforms":
                             '[{"random_horizontal_flip": {"p": 0.5}}]'}),
                ("estimate", {"format": "cifar10", "split": "test",
                              "path": os.path.join(daemon.data_root, "d")})):
            web.ask(name, **query)
        harness.expect_footprint(daemon, client, before)
        assert client.list_datasets() == datasets


def _fill_up(client, daemon, num_mib):
    """Datasets that nobody holds: each makes room if it must."""
    import numpy as np

    for i in range(num_mib // 8):
        with client.push_dataset(
                f"unused{i}", {"x": np.zeros((8, 1 << 20), np.uint8)}):
            pass


def test_samples_evict_no_dataset():
    with harness.Daemon(memory_budget_mib=64) as daemon:
        daemon.write_dataset(100)
        with daemon.connect() as client, Web(daemon.socket_path) as web:
            daemon.load(client)
            _fill_up(client, daemon, 56)
            names = [d["name"] for d in client.list_datasets()]
            status = client.status()["devices"][0]
            free = int(status["memory_budget_bytes"]) - sum(
                int(status[f"{kind}_bytes"])
                for kind in ("dataset", "slab", "scratch"))
            assert free < 16 << 20
            # Such a sample does not fit into that.
            wide = json.dumps([{"resize": {"size": {
                "height": 3000, "width": 3000}}}])
            status, code, message = web.refusal(
                "samples", dataset="d", count=2, transforms=wide)
            assert (status, code) == (507, "ResourceExhausted"), message
            assert [d["name"] for d in client.list_datasets()] == names
            # Small ones do.
            assert len(web.ask("samples", dataset="d")["samples"]) == 8


def test_transforms_that_were_too_long_to_keep(daemon, web):
    import datasetd
    import numpy as np
    from datasetd import transforms as T

    names = [f"image{i}" for i in range(8)]
    ops = [T.RandomAffine(10, translate=(0.1, 0.1), scale=(0.9, 1.1),
                          shear=(-5, 5, -5, 5))] * 30
    with daemon.connect() as client:
        dataset = client.push_dataset(
            "many", {name: np.zeros((4, 4, 4, 3), np.uint8) for name in names},
            fields={name: "image" for name in names})
        for chosen, status in ((names[:1], 200), (names, 409)):
            with datasetd.DataLoader(
                    dataset, framework="numpy",
                    transforms={name: ops for name in chosen}):
                feed_id = client.list_feeds()[0]["feed_id"]
                answer = web.request(
                    f"/api/samples?dataset=many&feed={feed_id}")
                assert answer[0] == status, answer
        assert b"too long to keep" in answer[2]
        client.unload_dataset("many")


def test_sequences_and_their_crops(daemon, web):
    import datasetd
    import numpy as np

    with daemon.connect() as client:
        dataset = client.push_dataset("sound", [
            {"audio": np.arange(n, dtype=np.float32),
             "stereo": np.ones((n, 2), np.int16)}
            for n in (0, 3000, 7)], ragged=True)
        answer = web.ask("samples", dataset="sound")
        assert not answer["has_transforms"]
        with datasetd.DataLoader(
                dataset, framework="numpy",
                windows=datasetd.crops(1000, "center", fill=-1)):
            feed_id = client.list_feeds()[0]["feed_id"]
            answer = web.ask("samples", dataset="sound", feed=feed_id)
        client.unload_dataset("sound")
    assert answer["has_transforms"]
    empty, long, short = answer["samples"]
    assert empty["original"]["audio"]["shape"] == [0]
    assert empty["original"]["stereo"]["shape"] == [0, 2]
    audio = long["original"]["audio"]
    assert (audio["kind"], audio["shape"]) == ("line", [3000])
    assert (audio["points"][0], audio["points"][-1]) == (0, 2999)
    audio = long["augmented"]["audio"]
    assert (audio["shape"], audio["points"][0]) == ([1000], 1000)
    assert short["augmented"]["audio"]["least"] == -1
    assert long["augmented"]["stereo"]["kind"] == "line"
    assert "with 2 channels, the first is shown" in " ".join(answer["notes"])
    assert [(op["field"], op["name"], op["parameters"]["start"])
            for op in long["ops"]] == [
                ("audio", "Crop", [1000]), ("stereo", "Crop", [1000])]


def _levels(planes):
    """The picture of [F, T]: low frequencies at the bottom, least is black."""
    import numpy as np

    low, high = planes.min(), planes.max()
    return np.rint((planes - low) / (high - low) * 255)[::-1]


def _grey(view):
    import io
    import urllib.request

    import numpy as np
    from PIL import Image

    with urllib.request.urlopen(view["url"]) as file:
        return np.asarray(Image.open(io.BytesIO(file.read()))).astype(int)


@pytest.mark.parametrize("kind", ["blocks", "random_windows", "crops"])
def test_spectrograms_are_pictures_beside_their_windows(daemon, web, kind):
    import datasetd
    import numpy as np
    from datasetd import transforms as T

    wave = np.random.default_rng(2).standard_normal(3000, np.float32)
    ops = [T.Gain(-12, 12, p=1), T.MelSpectrogram(n_fft=64, n_mels=16),
           T.AmplitudeToDB()]
    with daemon.connect() as client:
        if kind == "crops":
            dataset = client.push_dataset(
                "waves", [{"x": wave[:n]} for n in (900, 70, 1000)],
                ragged=True)
            windows, text = datasetd.crops(200, "random"), "crops(200, random)"
        else:
            dataset = client.push_dataset("waves", {"x": wave})
            windows = getattr(datasetd, kind)(200)
            text = f"{kind}(200)"
        with datasetd.DataLoader(
                dataset, 3, seed=5, windows=windows, framework="numpy",
                transforms={"x": ops}, fields="x") as loader:
            batch = next(iter(loader))
            feed_id = client.list_feeds()[0]["feed_id"]
            arguments = dict(dataset="waves", count=3, seed=5)
            of_feed = web.ask("samples", feed=feed_id, **arguments)
            pasted = web.ask(
                "samples", windows=text, transforms=json.dumps(
                    [op.to_message() for op in ops]), **arguments)
            assert of_feed["samples"] == pasted["samples"]
            assert (of_feed["num_samples"], of_feed["unit"]) == {
                "blocks": (15, "Window at step"),
                "random_windows": (15, "Random window"),
                "crops": (3, "Sample")}[kind]
            for sample, picture, start in zip(
                    of_feed["samples"], batch.x, batch.indices):
                shown = sample["augmented"]["x"]
                assert (shown["kind"], shown["size"]) == (
                    "image", [16, 7, 1])
                assert abs(_grey(shown) - _levels(picture)).max() <= 1
                first, gain = sample["ops"][:2]
                assert gain["name"] == "Gain"
                original = sample["original"]["x"]
                assert original["kind"] == "line"
                if kind != "crops":
                    assert first["parameters"] == {
                        "start": [start], "length": [200]}
                    assert original["shape"] == [200]
                    assert original["first"][0] == str(wave[start].item())
        status, _, message = web.refusal(
            "samples", dataset="waves", windows="blocks()")
        assert status == 400 and "required" in message
        client.unload_dataset("waves")


def test_resident_spectrograms_and_waveforms_of_channels(daemon, web):
    import numpy as np

    features = np.random.default_rng(3).random((2, 2, 10, 12), np.float32)
    with daemon.connect() as client:
        client.push_dataset("features", {
            "mel": features, "stereo": np.ones((2, 50, 2), np.int16),
            "small": np.ones((2, 3, 9), np.float32)})
        answer = web.ask("samples", dataset="features")
        client.unload_dataset("features")
    for sample, planes in zip(answer["samples"], features):
        view = sample["original"]
        assert abs(_grey(view["mel"]) - _levels(planes[0])).max() <= 1
        assert (view["stereo"]["kind"], view["stereo"]["shape"]) == (
            "line", [50, 2])
        assert view["small"]["kind"] == "array"
    assert "mel, with 2 channels, the first" in " ".join(answer["notes"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts another user's "
                    "process")
def test_another_user(daemon, request):
    # Not below pytest's folder, which each pytest that starts closes to others.
    directory = tempfile.mkdtemp(prefix="dd", dir="/tmp")
    request.addfinalizer(lambda: shutil.rmtree(directory))
    os.chmod(directory, 0o755)
    socket_path = os.path.join(directory, "page.sock")

    def get(web, path="", host="", *how):
        return subprocess.run(
            [sys.executable, "-c", _GET, host or web.host or "localhost",
             str(web.port or ""), path, web.token, *how], user=_NOBODY,
            extra_groups=[], stdout=subprocess.PIPE, text=True,
            cwd="/").stdout.strip()

    with Web(daemon.socket_path) as web:
        # The other address is the same in a socket of IPv6.
        for host in ("", "::ffff:127.0.0.1"):
            for how in ([], ["half closed"]):
                answer = get(web, "", host, *how)
                assert answer.startswith("403 "), answer
                assert "another user's" in answer
    with Web(daemon.socket_path, f"--unix_socket={socket_path}") as web:
        mode = os.stat(socket_path).st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
        assert web.request("/api/state")[0] == 200
        assert get(web, socket_path) == "EACCES"
        # The kernel's word counts, not the file's mode.
        os.chmod(socket_path, 0o666)
        answer = get(web, socket_path)
        assert answer.startswith("403 "), answer
    assert not os.path.exists(socket_path)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_owner_of_a_peer_in_any_state(host):
    from datasetd.web import _server

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        with listener.accept()[0] as ours:
            ends = ours.getsockname(), ours.getpeername()
            assert _server.tcp_peer_uid(*ends) == os.getuid()
            client.shutdown(socket.SHUT_WR)
            assert ours.recv(1) == b""  # FIN_WAIT there, CLOSE_WAIT here
            assert _server.tcp_peer_uid(*ends) == os.getuid()
            client.close()
            # Of a peer without a process the kernel says that it is root's.
            assert _server.tcp_peer_uid(*ends) is None


def test_a_peer_that_the_kernel_does_not_tell(monkeypatch):
    from datasetd.web import _server

    server = types.SimpleNamespace(address_family=socket.AF_INET)
    pair = types.SimpleNamespace(getsockname=lambda: ("127.0.0.1", 1),
                                 getpeername=lambda: ("127.0.0.1", 2))
    assert not _server.Server.is_admitted(server, pair)
    # Only where it tells nobody, the token decides alone.
    monkeypatch.setattr(_server, "_owner", mock.Mock(side_effect=OSError))
    assert _server.Server.is_admitted(server, pair)


def test_a_bad_sample_that_is_a_folder(tmp_path):
    """An open of it fails after it has a descriptor."""
    from datasetd.web import _pictures

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    before = os.listdir("/proc/self/fd")
    for name in ("folder", "pipe", "none"):
        bad = datasetd.BadSample(0, name, 0, "")
        with pytest.raises(datasetd.NotFound, match=f"{name}(:| is not a file)"):
            _pictures.picture(str(tmp_path), "image_folder", bad)
    assert os.listdir("/proc/self/fd") == before


def test_unix_socket_paths(daemon, tmp_path):
    path = str(tmp_path / "s")
    with Web(daemon.socket_path, f"--unix_socket={path}") as web:
        web.process.kill()
        web.process.wait()
        assert os.path.exists(path)
        # The socket of a killed server is replaced; that of a living one, and
        # a file, are not.
        with Web(daemon.socket_path, f"--unix_socket={path}") as again:
            assert again.request("/api/state")[0] == 200
            failed = _start(daemon, f"--unix_socket={path}")
            assert failed.returncode == 1
            assert (f"--unix_socket {path}: Address already in use; choose a "
                    "path that does not exist") in failed.stderr
            assert again.request("/api/state")[0] == 200
    with open(path, "w") as file:
        file.write("mine")
    failed = _start(daemon, f"--unix_socket={path}")
    assert failed.returncode == 1 and "in use" in failed.stderr
    with open(path) as file:
        assert file.read() == "mine"
    path = str(tmp_path / "none" / "s")
    failed = _start(daemon, f"--unix_socket={path}")
    assert failed.returncode == 1
    assert f"--unix_socket {path}: No such file or directory" in failed.stderr


def _start(daemon, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "datasetd", "web",
         f"--address={daemon.socket_path}", *arguments],
        capture_output=True, text=True, timeout=60)


def test_addresses_that_are_not_loopback(daemon):
    for host in ("0.0.0.0", "::", "192.0.2.1", "localhost"):
        failed = _start(daemon, f"--host={host}")
        assert failed.returncode == 2, failed
        assert "127.0.0.1" in failed.stderr
    failed = _start(daemon, "--port=70000")
    assert failed.returncode == 1 and "0 to 65535" in failed.stderr


def test_a_port_in_use(daemon, web):
    failed = _start(daemon, f"--port={web.port}")
    assert failed.returncode == 1
    assert (f"--port {web.port} of 127.0.0.1: Address already in use; choose "
            "another port, or omit --port for any free one") in failed.stderr


def test_ipv6_loopback(daemon):
    if not _has_ipv6():
        pytest.skip("this machine has no ::1")
    with Web(daemon.socket_path, "--host=::1") as web:
        assert web.url.startswith("http://[::1]:")
        assert web.request("/api/state")[0] == 200


def _has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            return True
    except OSError:
        return False


def test_silent_connections_hurt_nobody(web):
    with_nothing = [socket.create_connection((web.host, web.port))
                    for _ in range(40)]
    try:
        assert web.request("/api/state")[0] == 200
    finally:
        for connection in with_nothing:
            connection.close()


def test_more_connections_than_it_takes(web):
    with_nothing = [socket.create_connection((web.host, web.port))
                    for _ in range(64)]
    try:
        with socket.create_connection((web.host, web.port)) as one_more:
            answer = b""
            while part := one_more.recv(4096):
                answer += part
        assert answer.startswith(b"HTTP/1.1 503 "), answer
    finally:
        for connection in with_nothing:
            connection.close()
    harness.poll_until(lambda: _works(web), "it works again")


def _works(web):
    try:
        return web.request("/api/state")[0] == 200
    except OSError:
        return False


def test_ends_by_signals(daemon):
    for number in (signal.SIGINT, signal.SIGTERM):
        with Web(daemon.socket_path) as web:
            web.process.send_signal(number)
            assert web.process.wait(harness.DEADLINE_SECONDS) == 0


def test_a_dry_run_ends_with_who_asked_for_it(daemon):
    with Web(daemon.socket_path) as web:
        web.ask("state")
        daemon.stop()
        try:
            connection = web.connect()
            path = os.path.join(daemon.data_root, "d")
            connection.request(
                "GET", f"/api/estimate?format=cifar10&split=test&path={path}",
                headers={"Authorization": f"Bearer {web.token}"})
            port = connection.sock.getsockname()[1]
            harness.poll_until(lambda: web.unread_bytes(port) == 0,
                               "the dry run begins")
            connection.close()
            # The daemon still says nothing.
            harness.poll_until(lambda: web.unread_bytes(port) is None,
                               "the dry run ends", 10)
        finally:
            daemon.process.send_signal(signal.SIGCONT)


def test_ends_while_the_daemon_hangs(daemon):
    with Web(daemon.socket_path) as web:
        daemon.stop()
        try:
            web.ask("state")  # and it asks the daemon
            web.process.send_signal(signal.SIGTERM)
            assert web.process.wait(10) == 0
        finally:
            daemon.process.send_signal(signal.SIGCONT)


def test_starts_while_the_daemon_hangs(daemon):
    daemon.stop()
    try:
        with Web(daemon.socket_path) as web:
            assert not web.ask("state")["daemon"]["is_there"]
            daemon.process.send_signal(signal.SIGCONT)
            harness.poll_until(
                lambda: web.ask("state")["daemon"]["is_there"], "it answers")
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def test_the_command_of_datasetctl(daemon, tmp_path, monkeypatch):
    datasetctl = harness.runfile("client/ctl/datasetctl")
    # Anybody may have put a package into the working directory.
    planted = tmp_path / "datasetd"
    planted.mkdir()
    for name in ("__init__", "__main__"):
        (planted / f"{name}.py").write_text("raise SystemExit('planted')")
    monkeypatch.chdir(tmp_path)
    with Web(daemon.socket_path, command=[datasetctl, "web"]) as web:
        assert web.request("/api/state")[0] == 200
    # A python3 that has no such package: Debian's is taken, which has it.
    fake = tmp_path / "python3"
    fake.write_text('#!/bin/sh\nexec /usr/bin/python3 -I "$@"\n')
    fake.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with Web(daemon.socket_path, command=[datasetctl, "web"],
             environment=path) as web:
        assert web.request("/api/state")[0] == 200
    # The Python of the wheel that has datasetctl comes first.
    named = tmp_path / "named"
    named.write_text('#!/bin/sh\necho "$0" >>"$0.used"\n'
                     'exec /usr/bin/python3 "$@"\n')
    named.chmod(0o755)
    with Web(daemon.socket_path, command=[datasetctl, "web"],
             environment={**path, "DATASETD_PYTHON": str(named)}) as web:
        assert web.request("/api/state")[0] == 200
    assert (tmp_path / "named.used").read_text() == f"{named}\n" * 2
    # None has it.
    failed = subprocess.run(
        [datasetctl, "web"], capture_output=True, text=True, timeout=60,
        env={**{name: value for name, value in os.environ.items()
                if name != "PYTHONPATH"}, **path})
    assert failed.returncode == 1
    assert "finds no package `datasetd`" in failed.stderr
    assert "install" in failed.stderr
    # $DATASETD_PYTHON has no package: no other Python is tried.
    failed = subprocess.run(
        [datasetctl, "web"], capture_output=True, text=True, timeout=60,
        env={**os.environ, "DATASETD_PYTHON": str(fake)})
    assert failed.returncode == 1
    assert (f"'{fake}', which is $DATASETD_PYTHON, finds no package"
            in failed.stderr)


if __name__ == "__main__":
    harness.main(__file__)
