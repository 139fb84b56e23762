"""The files that an administrator installs: units, configuration, dashboard,
alerts. They are what the tools of their trade accept, and what the daemon
knows."""

import glob
import json
import os
import re
import shutil
import subprocess

import pytest

from tests.testing import daemon_harness as harness

_SYSTEMD = "deploy/systemd"
_UNITS = ["datasetd.service", "datasetd.socket", "datasetd-gpu.service",
          "datasetd-mps.service"]
_USER_UNITS = ["user/datasetd.service", "user/datasetd.socket"]


def _run(*command, **keywords):
    return subprocess.run(command, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120,
                          **keywords)


def _root_with_units(tmp_path):
    """A root directory in which the units are installed, and what they run."""
    root = tmp_path / "root"
    units = root / "usr/lib/systemd/system"
    user_units = root / "usr/lib/systemd/user"
    binaries = root / "usr/bin"
    for directory in (units, user_units, binaries, root / "bin", root / "etc"):
        directory.mkdir(parents=True)
    for name in _UNITS:
        shutil.copy(harness.runfile(f"{_SYSTEMD}/{name}"), units)
    for name in _USER_UNITS:
        shutil.copy(harness.runfile(f"{_SYSTEMD}/{name}"), user_units)
    for name in ("datasetd", "nvidia-modprobe", "nvidia-cuda-mps-control"):
        (binaries / name).write_text("#!/bin/sh\n")
        (binaries / name).chmod(0o755)
    for name in ("kill", "mkdir", "sh"):
        (root / "bin" / name).write_text("#!/bin/sh\n")
        (root / "bin" / name).chmod(0o755)
    # Units that ours name come from the system.
    for name in os.listdir("/usr/lib/systemd/system"):
        if not (units / name).exists() and name.endswith(
                (".target", ".slice", ".service", ".socket", ".mount")):
            source = os.path.join("/usr/lib/systemd/system", name)
            if os.path.isfile(source) and name.endswith((".target", ".slice")):
                shutil.copy(source, units)
    return root, units, user_units


@pytest.mark.parametrize("name", _UNITS)
def test_systemd_accepts_the_unit(tmp_path, name):
    root, _, _ = _root_with_units(tmp_path)
    done = _run("systemd-analyze", "verify", "--man=no", f"--root={root}",
                f"/usr/lib/systemd/system/{name}")
    assert done.returncode == 0, done.stdout
    assert done.stdout == ""


def test_verify_finds_what_is_wrong(tmp_path):
    # The test above can fail.
    root, units, _ = _root_with_units(tmp_path)
    with open(units / "datasetd.service", "a") as unit:
        unit.write("[Service]\nNoSuchKey=1\n")
    done = _run("systemd-analyze", "verify", "--man=no", f"--root={root}",
                "/usr/lib/systemd/system/datasetd.service")
    assert "NoSuchKey" in done.stdout


@pytest.mark.parametrize("name", _USER_UNITS)
def test_systemd_accepts_the_user_unit(tmp_path, name):
    root, _, _ = _root_with_units(tmp_path)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    done = _run("systemd-analyze", "--user", "verify", "--man=no",
                f"--root={root}", f"/usr/lib/systemd/{name}",
                env=dict(os.environ, HOME=str(tmp_path),
                         XDG_RUNTIME_DIR=str(runtime)))
    problems = [line for line in done.stdout.splitlines()
                if "datasetd" in line]
    assert problems == []


def test_the_exposure_is_what_cuda_leaves_open():
    done = _run("systemd-analyze", "security", "--offline=true",
                harness.runfile(f"{_SYSTEMD}/datasetd.service"))
    level = re.search(r"exposure level for datasetd\.service: ([\d.]+)",
                      done.stdout)
    assert level, done.stdout
    assert float(level.group(1)) <= 3.5


def _keys(text):
    """Keys of a unit, each with its values, in order."""
    values = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            values.setdefault(key, []).append(value)
    return values


def _unit(name):
    with open(harness.runfile(f"{_SYSTEMD}/{name}")) as unit:
        return _keys(unit.read())


def _calls(words):
    """The system calls of a value of SystemCallFilter=."""
    calls = set()
    for word in words.split():
        if not word.startswith("@"):
            calls.add(word)
            continue
        done = _run("systemd-analyze", "syscall-filter", word)
        assert done.returncode == 0, done.stdout
        calls |= _calls(" ".join(
            line.strip() for line in done.stdout.splitlines()[1:]
            if not line.strip().startswith("#")))
    return calls


def test_the_service_may_make_its_own_sockets():
    first, *more = _unit("datasetd.service")["SystemCallFilter"]
    allowed = _calls(first)
    for value in more:
        if value.startswith("~"):
            allowed -= _calls(value[1:])
        else:
            allowed |= _calls(value)
    # `socket_group`, `socket_mode`.
    assert {"bind", "chown", "chmod"} <= allowed
    assert not {"setuid", "chroot", "mount", "bpf", "init_module"} & allowed


def test_a_service_for_each_gpu(tmp_path):
    root, units, _ = _root_with_units(tmp_path)
    commands = _commands("docs/loading.md", "**A daemon for each GPU**")
    (command,) = re.findall(r"(?s)^sed .*?[^\\]$", commands, re.MULTILINE)
    for path in ("/lib/systemd/system/datasetd.service",
                 "/etc/systemd/system/datasetd@.service"):
        assert command.count(path) == 1
        command = command.replace(path, str(units / os.path.basename(path)))
    done = _run("sh", "-c", command)
    assert done.returncode == 0, done.stdout
    (units / "datasetd.socket").unlink()
    (units / "datasetd.service").unlink()
    keys = _keys((units / "datasetd@.service").read_text())
    assert not any("datasetd.socket" in value for values in keys.values()
                   for value in values)
    changed = {key: values for key, values in keys.items()
               if values != _unit("datasetd.service")[key]}
    del changed["After"]
    assert changed == {
        "ExecStart": ["/usr/bin/datasetd --config=/etc/datasetd/%i.yaml"],
        "UMask": ["0027"],
        "CacheDirectory": ["datasetd-%i"],
        "StateDirectory": ["datasetd-%i"],
        "Environment": ["CUDA_CACHE_PATH=%C/datasetd-%i/cuda"],
    }
    done = _run("systemd-analyze", "verify", "--man=no", f"--root={root}",
                "/usr/lib/systemd/system/datasetd@gpu0.service")
    assert done.returncode == 0 and done.stdout == "", done.stdout


def _commands(page, heading):
    """The first block of commands behind `heading`."""
    with open(harness.runfile(page)) as file:
        text = file.read().split(heading)[1]
    return text.split("```sh\n")[1].split("```")[0]


def test_the_service_goes_without_the_socket_unit(tmp_path):
    root, units, _ = _root_with_units(tmp_path)
    (units / "datasetd.socket").unlink()
    (command,) = [
        line for line in _commands(
            "docs/operations.md", "**Without the socket unit**").splitlines()
        if line.startswith("sed ")]
    unit = units / "datasetd.service"
    done = _run("sh", "-c", command.replace(
        "/etc/systemd/system/datasetd.service", str(unit)))
    assert done.returncode == 0, done.stdout
    keys = _keys(unit.read_text())
    left = {key: values for key, values in keys.items()
            if any("datasetd.socket" in value for value in values)}
    assert left == {}
    assert keys["After"] == [
        "local-fs.target remote-fs.target",
        _unit("datasetd.service")["After"][-1]]
    done = _run("systemd-analyze", "verify", "--man=no", f"--root={root}",
                "/usr/lib/systemd/system/datasetd.service")
    assert done.returncode == 0 and done.stdout == "", done.stdout


def test_the_service_is_set_as_cuda_and_the_daemon_need_it():
    service = _unit("datasetd.service")
    assert service["PrivateDevices"] == ["no"]
    assert service["ProcSubset"] == ["all"]
    assert "PrivateUsers" not in service
    assert "DynamicUser" not in service
    # systemd denies openat2 with it, and no data root could be opened.
    for unit in (service, _unit("user/datasetd.service")):
        assert "RestrictSUIDSGID" not in unit
    # The exit code for a bad configuration.
    assert service["RestartPreventExitStatus"] == ["2"]
    # The driver may come later.
    for key in ("Requires", "BindsTo", "ConditionPathExists", "Wants"):
        assert not any("nvidia" in value for value in service.get(key, []))
    assert service["Wants"] == ["datasetd-gpu.service"]
    assert service["Restart"] == ["on-failure"]


def test_a_leak_costs_the_daemon_and_not_trainers():
    for unit in (_unit("datasetd.service"), _unit("user/datasetd.service")):
        high, most = (int(re.fullmatch(r"(\d+)%", unit[key][0]).group(1))
                      for key in ("MemoryHigh", "MemoryMax"))
        assert high < most < 100
        # More than there are threads and connections.
        assert int(unit["TasksMax"][0]) >= 1024
        assert int(unit["OOMScoreAdjust"][0]) >= 0
        # Five descriptors a session, and as many for the rest.
        sessions = int(re.search(r"(?m)^max_sessions: (\d+)$",
                                 _config_text()).group(1))
        assert int(unit["LimitNOFILE"][0]) >= 2 * 5 * sessions


def test_the_nodes_are_made_outside_of_the_service():
    # DevicePolicy= is for all processes of a unit, whatever their user: one
    # that makes nodes can neither do so there nor have them allowed later.
    service = _unit("datasetd.service")
    assert service["DevicePolicy"] == ["closed"]
    assert not any("nvidia" in command for key, commands in service.items()
                   if key.startswith("Exec") for command in commands)
    helper = _unit("datasetd-gpu.service")
    assert "DevicePolicy" not in helper
    assert helper["Type"] == ["oneshot"]
    # Its end is waited for, whatever it is.
    assert "datasetd-gpu.service" in service["After"][-1].split()
    assert all(value.startswith("-") for value in helper["ExecStart"])
    # nvidia-modprobe(1): 255 is nvidiactl, and with -u a number is no GPU's.
    assert [value.split()[1:] for value in helper["ExecStart"]] == [
        ["-c", "255", "-c", "0"], ["-u", "-c", "0"]]


def test_the_example_configuration_agrees_with_the_units():
    config = _config_text()
    sockets = _unit("datasetd.socket")
    assert (f"\nsocket_path: {sockets['ListenSequentialPacket'][0]}\n"
            in config)
    assert sockets["SocketMode"] == ["0660"]
    assert sockets["SocketGroup"] == ["datasetd"]
    assert _unit("datasetd.service")["ReadWritePaths"] == ["/run/datasetd"]


def test_sysusers_and_tmpfiles_are_accepted(tmp_path):
    (tmp_path / "etc").mkdir()
    done = _run("systemd-sysusers", f"--root={tmp_path}",
                harness.runfile(f"{_SYSTEMD}/datasetd.sysusers.conf"))
    assert done.returncode == 0, done.stdout
    assert "datasetd:" in (tmp_path / "etc/passwd").read_text()
    assert "datasetd:" in (tmp_path / "etc/group").read_text()
    done = _run("systemd-tmpfiles", "--create", f"--root={tmp_path}",
                harness.runfile(f"{_SYSTEMD}/datasetd.tmpfiles.conf"))
    assert done.returncode == 0, done.stdout
    status = os.stat(tmp_path / "run/datasetd")
    assert status.st_mode & 0o777 == 0o750


def _config_text():
    with open(harness.runfile("deploy/config/datasetd.yaml")) as file:
        return file.read()


def _fields(message):
    """The names of a message's fields."""
    with open(harness.runfile("proto/datasetd/v1/server.proto")) as file:
        text = file.read().split(f"message {message} {{")[1].split("\n}")[0]
    return re.findall(r"(\w+)\s*=\s*\d+;", re.sub(r"//.*", "", text))


def _check_config(tmp_path, text):
    path = tmp_path / "datasetd.yaml"
    path.write_text(text)
    return _run(harness.runfile("server/datasetd"), f"--config={path}",
                "--check_config")


def test_the_example_configuration_is_valid(tmp_path):
    done = _check_config(tmp_path, _config_text())
    assert done.returncode == 0, done.stdout


def test_what_is_commented_out_in_it_is_valid_too(tmp_path):
    # "#key: ..." is an example, "# Text" is explanation.
    text = re.sub(r"(?m)^#(\w+:|  +[-\w])", r"\1", _config_text())
    assert "\ndata_roots: [/data]\n" in text
    assert "\ndatasets:\n  - name: cifar10-train\n" in text
    done = _check_config(tmp_path, text)
    assert done.returncode == 0, done.stdout


def test_the_example_configuration_explains_every_key():
    fields = _fields("Config")
    assert {"socket_path", "datasets", "metrics_port"} <= set(fields)
    blocks = _config_text().split("\n\n")
    for field in fields:
        explained = [block for block in blocks
                     if re.search(rf"(?m)^#?{field}:", block)]
        assert len(explained) == 1, field
        assert explained[0].lstrip("\n").startswith("# "), field


def test_it_has_every_limit_of_a_user():
    limits = _config_text().split("\nuser_limits:\n")[1].split("\n\n")[0]
    assert re.findall(r"(?m)^  #?(\w+): \d+$", limits) == _fields("UserLimits")
    # None but those whose 0 is the default: another value binds root, too.
    assert re.findall(r"(?m)^  (\w+): (\d+)$", limits) == [
        ("max_calls", "0"), ("max_loads", "0")]


def test_an_unknown_key_is_named(tmp_path):
    done = _check_config(tmp_path, _config_text() + "\nno_such_key: 1\n")
    assert done.returncode == 2
    assert "no_such_key" in done.stdout


def _metric_names():
    names = set()
    for source in ("server/metrics/metrics.cc",):
        with open(harness.runfile(source)) as file:
            names.update(re.findall(r'"(datasetd_\w+)"', file.read()))
    assert len(names) > 30
    return names


def _is_known(name):
    names = _metric_names()
    return name in names or re.sub(r"_(bucket|sum|count)$", "", name) in names


def test_the_alert_rules_are_valid_and_name_metrics_there_are():
    path = harness.runfile("deploy/grafana/datasetd.rules.yaml")
    done = _run("promtool", "check", "rules", path)
    assert done.returncode == 0, done.stdout
    with open(path) as file:
        used = set(re.findall(r"\bdatasetd_\w+", file.read()))
    assert used
    assert [name for name in used if not _is_known(name)] == []


def test_the_alerts_fire_when_they_should(tmp_path):
    # promtool wants the rules by a path from the tests' file.
    for name in ("datasetd.rules.yaml", "datasetd.rules.test.yaml"):
        shutil.copy(harness.runfile(f"deploy/grafana/{name}"), tmp_path)
    done = _run("promtool", "test", "rules", "datasetd.rules.test.yaml",
                cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_the_dashboard_draws_metrics_there_are():
    with open(harness.runfile("deploy/grafana/datasetd.json")) as file:
        dashboard = json.load(file)
    assert dashboard["title"] == "datasetd"
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        for target in panel["targets"]:
            used = re.findall(r"\bdatasetd_\w+", target["expr"])
            assert used, panel["title"]
            assert all(_is_known(name) for name in used), target["expr"]


def test_the_manual_lists_every_metric_and_no_other():
    with open(harness.runfile("docs/operations.md")) as file:
        text = file.read()
    listed = set(re.findall(r"`(datasetd_\w+)", text))
    assert _metric_names() - listed == set()
    assert [name for name in listed if not _is_known(name)] == []


def test_nothing_is_installed_that_these_tests_do_not_see():
    there = {os.path.relpath(path, harness.runfile(_SYSTEMD))
             for path in glob.glob(harness.runfile(f"{_SYSTEMD}/**"),
                                   recursive=True) if os.path.isfile(path)}
    assert there == {*_UNITS, *_USER_UNITS, "datasetd.sysusers.conf",
                     "datasetd.tmpfiles.conf"}


if __name__ == "__main__":
    harness.main(__file__)
