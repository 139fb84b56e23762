"""What the Debian package's scripts have systemd do in an upgrade.

The scripts run on a directory as their root, with commands that write down how
they are called. tests/deploy/debootstrap.sh upgrades a real system.
"""

import pathlib
import sys
import tempfile
import unittest

from tests.deploy import package_harness as harness

_STOP = "deb-systemd-invoke stop datasetd.service datasetd.socket"
_RELOAD = "systemctl --system daemon-reload"
_START_SOCKET = "deb-systemd-invoke start datasetd.socket"
_START = "deb-systemd-invoke start datasetd.service"
_RESTART = "deb-systemd-invoke restart datasetd.service"
_COMMANDS = ("deb-systemd-helper", "deb-systemd-invoke", "py3compile",
             "systemctl", "systemd-sysusers", "systemd-tmpfiles")


class UpgradeTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.calls = self.root / "calls"
        self.unit = self.root / "lib/systemd/system/datasetd.socket"
        self.unit.parent.mkdir(parents=True)
        (self.root / "run/systemd/system").mkdir(parents=True)
        (self.root / "bin").mkdir()
        for name in _COMMANDS:
            command = self.root / "bin" / name
            command.write_text(
                f"#!/bin/sh\necho {name} \"$@\" >>'{self.calls}'\n")
            command.chmod(0o755)
        self.new = harness.runfile(
            "deploy/systemd/datasetd.socket").read_text()

    def run_script(self, name, *arguments):
        harness.run(
            "sh", harness.runfile(f"deploy/debian/{name}"), *arguments,
            environment={"PATH": f"{self.root}/bin:/usr/bin:/bin",
                         "DPKG_ROOT": str(self.root)})

    def install(self, before=None):
        """Returns what systemd is told when `before` was the socket's unit."""
        version = [] if before is None else ["0.1.0-1"]
        if before is not None:
            self.unit.write_text(before)
        self.run_script("preinst", "install" if before is None else "upgrade",
                        *version)
        self.unit.write_text(self.new)
        self.run_script("postinst", "configure", *version)
        self.assertEqual(
            [path.name for path in (self.root / "run").iterdir()], ["systemd"])
        return [line for line in self.calls.read_text().splitlines()
                if line.startswith(("systemctl", "deb-systemd-invoke"))]

    def test_a_new_installation_starts_both(self):
        self.assertEqual(self.install(), [_RELOAD, _START_SOCKET, _START])

    def test_a_socket_that_is_the_same_stays(self):
        for before in (self.new, "# Another comment.\n\n" + self.new):
            self.calls.write_text("")
            self.assertEqual(self.install(before),
                             [_RELOAD, _START_SOCKET, _RESTART])

    def test_a_socket_that_changed_is_made_anew(self):
        listen = "ListenSequentialPacket=/run/datasetd/datasetd.sock\n"
        self.assertIn(listen, self.new)
        for before in (
                self.new.replace(
                    listen, "ListenStream=/run/datasetd/datasetd.sock\n"),
                self.new.replace("SocketMode=0660", "SocketMode=0600"),
                self.new + "TriggerLimitBurst=5\n"):
            self.calls.write_text("")
            # By the unit of before, which knows what it has made.
            self.assertEqual(self.install(before),
                             [_STOP, _RELOAD, _START_SOCKET, _RESTART])

    def test_without_systemd_nothing_is_started(self):
        (self.root / "run/systemd/system").rmdir()
        self.assertEqual(self.install("[Socket]\n"), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
