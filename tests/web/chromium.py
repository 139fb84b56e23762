"""Chromium without a window, driven by its DevTools protocol over a pipe."""

import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

DEADLINE_SECONDS = 60.0


def program():
    found = shutil.which("chromium")
    assert found, "there is no chromium: deploy/install_deps.sh installs it"
    return found


def _high(descriptor):
    """Moves a descriptor above those that the shell below assigns."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    os.set_inheritable(moved, True)
    return moved


class ScriptError(Exception):
    pass


class Chromium:
    """A browser with one tab. A context manager: the end kills it."""

    def __init__(self, width=1280, height=900):
        self._profile = tempfile.mkdtemp(prefix="chromium", dir="/tmp")
        theirs_in, ours_out = (_high(fd) for fd in os.pipe())
        ours_in, theirs_out = (_high(fd) for fd in os.pipe())
        arguments = [
            program(), "--headless=new", "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            f"--window-size={width},{height}", "--hide-scrollbars",
            "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--force-color-profile=srgb",
            # No name is looked up, and nothing but loopback is reached.
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1, "
            "EXCLUDE localhost",
            "about:blank"]
        if os.getuid() == 0:
            arguments.insert(1, "--no-sandbox")
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}',
             "chromium", *arguments],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = ours_out, ours_in
        self._buffer = b""
        self._ids = itertools.count(1)
        self._session = None
        self.events = []
        try:
            targets = self.call("Target.getTargets")["targetInfos"]
            page = next(t for t in targets if t["type"] == "page")
            self._session = self.call(
                "Target.attachToTarget", targetId=page["targetId"],
                flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    # -- The protocol ---------------------------------------------------------

    def _read(self, deadline):
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise AssertionError("Chromium does not answer")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise AssertionError("Chromium has ended")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **parameters):
        """The result of a command; events meanwhile go to `events`."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data):]
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            answer = self._read(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise ScriptError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    # -- The page -------------------------------------------------------------

    def open(self, url):
        """Loads a page in the tab, also if it differs in the fragment alone."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && "
                  "location.href !== 'about:blank'")

    def run(self, expression):
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise ScriptError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, expression, what=None, timeout=DEADLINE_SECONDS):
        """Waits until an expression is true, and returns its value."""
        deadline = time.monotonic() + timeout
        while True:
            value = self.run(expression)
            if value:
                return value
            if time.monotonic() >= deadline:
                raise AssertionError(
                    f"not within {timeout} s: {what or expression}; the page "
                    f"says: {self.text('body')[:3000]}")
            # A pause between two looks; its length changes no result.
            select.select([], [], [], 0.02)

    def text(self, selector):
        """The text of the first element that is found, as it is shown."""
        return self.run(
            f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def texts(self, selector):
        return self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            ".map((node) => node.innerText)")

    def click(self, selector):
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, selector, value):
        """Sets a form's element, as a user who leaves it does."""
        self.run(
            f"(() => {{ const node = document.querySelector("
            f"{json.dumps(selector)}); node.value = {json.dumps(value)}; "
            "node.dispatchEvent(new Event('input', {bubbles: true})); "
            "node.dispatchEvent(new Event('change', {bubbles: true})); })()")

    def press(self, key, code=None, virtual=0, text=None):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key,
                      code=code or key, windowsVirtualKeyCode=virtual,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def errors(self):
        """Returns the complaints of the page and its policy."""
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"]))
            if event["method"] == "Log.entryAdded":
                entry = parameters["entry"]
                if entry["source"] in ("security", "violation", "javascript"):
                    found.append(entry["text"])
        return found

    # -- Life -----------------------------------------------------------------

    def close(self):
        # Its helpers have its process group.
        try:
            os.killpg(self._process.pid, 9)
        except ProcessLookupError:
            pass
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
