"""The page's server, as a process of its own, and requests to it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.parse

from tests.testing import daemon_harness as harness


class Web(harness.ProcessView):
    """python -m datasetd web. A context manager."""

    def __init__(self, address, *arguments, command=None, environment=None):
        command = command or [sys.executable, "-m", "datasetd", "web"]
        self.process = subprocess.Popen(
            [*command, "--json", f"--address={address}", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})})
        super().__init__(self.process.pid)
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        said = json.loads(line)
        self.url = said["url"]
        self.unix_socket = said["unix_socket"]
        parts = urllib.parse.urlsplit(self.url)
        self.host, self.port = parts.hostname, parts.port
        self.token = urllib.parse.parse_qs(parts.fragment)["token"][0]

    def page(self, **state):
        """The page's address, with a state."""
        return f"{self.url}&{urllib.parse.urlencode(state)}"

    def connect(self):
        if self.unix_socket is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=30)
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.unix_socket)
        return connection

    def request(self, path, method="GET", token=True, **headers):
        """(status, headers, body); `token` may be another one, or None."""
        sent = {name.replace("_", "-"): value
                for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = "Bearer " + (
                self.token if token is True else token)
        connection = self.connect()
        try:
            connection.request(method, path, headers=sent)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def ask(self, name, /, **query):
        """The answer of the API; asserts that it is one."""
        status, _, body = self.request(
            f"/api/{name}?{urllib.parse.urlencode(query)}")
        assert status == 200, (status, body)
        return json.loads(body)

    def refusal(self, name, /, **query):
        """(status, code, message) of the API's error."""
        status, _, body = self.request(
            f"/api/{name}?{urllib.parse.urlencode(query)}")
        error = json.loads(body)["error"]
        return status, error["code"], error["message"]

    def unread_bytes(self, client_port):
        """Returns how many bytes of a client's connection the server has not
        read; None if it has closed it."""
        ends = f":{self.port:04X}", f":{client_port:04X}"
        with open("/proc/net/tcp", encoding="ascii") as file:
            for line in file:
                _, local, remote, _, queues = line.split()[:5]
                if local.endswith(ends[0]) and remote.endswith(ends[1]):
                    return int(queues.split(":")[1], 16)
        return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()


# A job: batches of one loader until it is told to end. `pause` is a step's time
# in seconds; "faster", "slower" change it.
JOB = """
import select
from datasetd import transforms as T
def transforms_of(name):
    if name == "none":
        return []
    if name == "slow":
        return [T.Resize(224), T.GaussianBlur(23, 3.0), T.GaussianBlur(23, 3.0)]
    return [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(),
            T.ToDtype("float32", scale=True),
            T.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))]
client = datasetd.connect(ADDRESS)
dataset = client.get_dataset(ARGUMENTS["dataset"])
pause = ARGUMENTS.get("pause", 0.02)
loaders = []
for options in ARGUMENTS.get("loaders", [{}]):
    options = dict(options)
    loaders.append(datasetd.DataLoader(
        dataset, framework="numpy", shuffle=True,
        transforms=transforms_of(options.pop("transforms", "usual")),
        **{"batch_size": 16, "prefetch": 4, **options}))
iterators = [iter(loader) for loader in loaders]
say(pid=os.getpid())
while True:
    for i, loader in enumerate(loaders):
        batch = next(iterators[i], None)
        if batch is None:
            iterators[i] = iter(loader)
    del batch
    if select.select([sys.stdin], [], [], pause)[0]:
        message = hear()
        if message.get("end"):
            break
        pause = message["pause"]
"""


def job(address, dataset, **arguments):
    """A Worker that runs JOB, once it reads batches."""
    worker = harness.Worker(JOB, address, dataset=dataset, **arguments)
    worker.hear()
    return worker
