#!/bin/bash
# debootstrap.sh runs this inside, as root: see there. Each step says what it
# does; the first that goes wrong ends it.
set -euo pipefail
cd /srv/check
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
trap 'echo "FAILED at line $LINENO"' ERR
trap '[[ $? == 0 ]] || journalctl -o cat -n 20 --no-pager \
  _SYSTEMD_UNIT=datasetd.service + _SYSTEMD_USER_UNIT=datasetd.service' EXIT

say() { printf '\n== %s\n' "$*"; }

# expect CODE COMMAND...: runs it, shows it and what it says.
expect() {
  local code=0 wanted=$1
  shift
  printf '$ %s\n' "$*"
  "$@" 2>&1 || code=$?
  if [[ $code -ne $wanted ]]; then
    echo "FAILED: it ended with $code, not with $wanted"
    exit 1
  fi
}

# await COMMAND...: until it succeeds; at most a minute.
await() {
  local end=$((SECONDS + 60))
  until "$@"; do
    if ((SECONDS > end)); then
      echo "FAILED: not within a minute: $*"
      exit 1
    fi
    sleep 0.05 # between two looks
  done
}

install_deb() {
  printf '$ apt-get install %s\n' "$1"
  apt-get -qq -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold \
    install -y "./$1" >apt.log 2>&1 || { tail -20 apt.log; return 1; }
}

as() {
  local user=$1
  shift
  runuser -u "$user" -- "$@"
}

num_lines() { [[ ! -e $1 ]] || wc -l <"$1"; }
has_lines() { (($(num_lines "$1") >= $2)); }
socket_inode() { stat -c %i /run/datasetd/datasetd.sock; }
main_pid() { systemctl show --property=MainPID --value datasetd.service; }

say "Debian $(cat /etc/debian_version), $(systemctl --version | sed -n 1p)"
apt-get -qq update

say "Install"
install_deb first.deb
expect 0 dpkg-query -W datasetd
expect 0 systemctl is-enabled datasetd.socket datasetd.service
expect 0 systemctl is-active datasetd.socket datasetd.service
expect 0 stat -c '%A %U:%G %n' /run/datasetd /run/datasetd/datasetd.sock \
  /run/datasetd/attach.sock
expect 0 datasetctl status

say "The driver's device nodes come after the daemon"
config=/etc/datasetd/datasetd.yaml
cp $config before.yaml
sed -i -e 's|^#devices:.*|devices: ["cuda:0"]|' \
  -e 's|^device_wait:.*|device_wait: 10m|' $config
systemctl restart --no-block datasetd.service
status_text() { systemctl show --property=StatusText --value datasetd.service; }
waits() { status_text | grep -q 'waiting for devices'; }
has_restarted() {
  [[ $(systemctl show --property=NRestarts --value datasetd.service) == 1 ]]
}
await waits
expect 0 status_text
if has_restarted; then
  echo "FAILED: it did not wait"
  exit 1
fi
# systemd listed the devices that the service may use when this was not there.
expect 0 mknod -m 666 /dev/nvidiactl c 195 255
await has_restarted
expect 0 journalctl -u datasetd -p 3 -o cat -g forbidden --no-pager
# Now it is on the list, and waits for a driver behind it.
await waits
status_text >seen
await_more() { waits && ! cmp -s <(status_text) seen; }
await await_more
has_restarted
rm /dev/nvidiactl
cp before.yaml $config
systemctl restart datasetd.service

say "Configure"
mkdir -p /srv/data
python3 -c '
open("/srv/data/test_batch.bin", "wb").write(
    b"".join(bytes([i % 10]) + bytes([i % 256]) * 3072 for i in range(2000)))'
useradd --create-home alice
usermod --append --groups datasetd alice
useradd --create-home bob
sed -i -e 's|^#data_roots:.*|data_roots: [/srv/data]|' \
  -e 's|^metrics_port: 0|metrics_port: 9464|' /etc/datasetd/datasetd.yaml
expect 0 datasetd --config=/etc/datasetd/datasetd.yaml --check_config
expect 0 systemctl restart datasetd.service

say "A member of the group uses it"
expect 0 as alice datasetctl load cifar --format cifar10 --split test \
  --path /srv/data
expect 0 as alice datasetctl load pictures --format image_folder \
  --path /srv/data/images
expect 0 as alice python3 -m datasetd load volumes npz /srv/data/images.npz
expect 0 as alice datasetctl unload pictures
expect 0 as alice datasetctl unload volumes
expect 0 as alice python3 /srv/check/installed_job.py /home/alice/three 3
expect 0 cat /home/alice/three
expect 0 as alice datasetctl doctor
expect 0 python3 -c '
import urllib.request
for line in urllib.request.urlopen("http://127.0.0.1:9464/metrics"):
    if line.startswith((b"datasetd_samples_total", b"datasetd_build_info")):
        print(line.decode(), end="")'

say "A stranger does not"
expect 1 as bob datasetctl status
expect 1 as bob datasetctl doctor --no_sharing
expect 1 as bob python3 /srv/check/installed_job.py /dev/null 1

say "A user's own daemon"
useradd --create-home carol
run_dir=/run/user/$(id -u carol)
as_carol() { as carol env XDG_RUNTIME_DIR="$run_dir" "$@"; }
loginctl enable-linger carol
await test -S "$run_dir/systemd/private"
# The commands of the page, as the package installs it. Metrics are on here.
# shellcheck disable=SC2016
sed -n '/^\*\*A daemon of one user/,/^```$/{/^```sh/,/^```$/{/^```/!p}}' \
  /usr/share/doc/datasetd/operations.md >recipe
cat recipe
grep -q 'systemctl --user enable' recipe
expect 0 as_carol env HOME=/home/carol bash -eu /srv/check/recipe
expect 0 grep -E '^metrics_port:' /home/carol/.config/datasetd/datasetd.yaml
expect 0 as_carol systemctl --user is-active datasetd.socket datasetd.service
expect 0 stat -c '%A %U:%G %n' /home/carol/.cache/datasetd \
  /home/carol/.local/state/datasetd
expect 0 stat -c '%A %U:%G %n' "$run_dir"/datasetd/*.sock
export DATASETD_ADDRESS=$run_dir/datasetd/datasetd.sock
expect 0 as_carol datasetctl load cifar --format cifar10 --split test \
  --path /srv/data
expect 0 as_carol python3 /srv/check/installed_job.py /home/carol/three 3
cmp /home/alice/three /home/carol/three
expect 1 as alice datasetctl status
expect 1 as carol env -u DATASETD_ADDRESS datasetctl status
unset DATASETD_ADDRESS
expect 0 as_carol systemctl --user disable --now datasetd.socket \
  datasetd.service
as carol rm -r /home/carol/.config /home/carol/.cache /home/carol/.local

say "The daemon is down"
expect 0 systemctl stop datasetd.socket datasetd.service
expect 3 as alice datasetctl status
expect 1 as alice datasetctl doctor --no_sharing
expect 0 systemctl start datasetd.socket datasetd.service

say "The journal knows fields"
uid=$(id -u alice)
expect 0 journalctl -u datasetd DATASET=cifar UID="$uid" SUBSYSTEM=load \
  -o json --output-fields=MESSAGE,PRIORITY,DATASET,UID,SUBSYSTEM -n 1
[[ $(journalctl -u datasetd DATASET=cifar UID="$uid" -o cat | wc -l) -ge 2 ]]

say "Its levels change while it runs"
pid=$(main_pid)
sed -i 's|^log_level: info|log_level: debug|' /etc/datasetd/datasetd.yaml
expect 0 systemctl reload datasetd.service
reloaded() { journalctl -u datasetd -o cat | grep -q 'log levels reloaded'; }
await reloaded
[[ $(main_pid) == "$pid" ]]

say "Upgrade under a job that reconnects"
as alice python3 installed_job.py /home/alice/batches &
job=$!
await has_lines /home/alice/batches 100
before=$(num_lines /home/alice/batches)
socket=$(socket_inode)
install_deb next.deb
expect 0 dpkg-query -W datasetd
[[ $(main_pid) != "$pid" && $(main_pid) != 0 ]]
[[ $(socket_inode) == "$socket" ]]
after=$(num_lines /home/alice/batches)
await has_lines /home/alice/batches $((after + 100))

say "Upgrade to a package with another socket, under the same job"
second=$(main_pid)
install_deb last.deb
expect 0 dpkg-query -W datasetd
[[ $(main_pid) != "$second" && $(main_pid) != 0 ]]
[[ $(socket_inode) != "$socket" ]]
expect 0 systemctl is-active datasetd.socket datasetd.service
[[ $(systemctl show --property=Backlog --value datasetd.socket) == 512 ]]
expect 0 stat -c '%A %U:%G %n' /run/datasetd/datasetd.sock \
  /run/datasetd/attach.sock
after=$(num_lines /home/alice/batches)
await has_lines /home/alice/batches $((after + 100))
as alice touch /home/alice/batches.stop
wait "$job"
total=$(num_lines /home/alice/batches)
as alice python3 installed_job.py /home/alice/undisturbed "$total"
expect 0 cmp /home/alice/batches /home/alice/undisturbed
echo "the daemon was process $pid and is $(main_pid); of $total batches the" \
  "job had at least $before before and 100 after each; order and content are those" \
  "of a job that nothing disturbed"
from_cache() {
  journalctl _SYSTEMD_UNIT=datasetd.service _PID="$(main_pid)" -o cat |
    grep 'cache: .*: used'
}
expect 0 from_cache
expect 0 stat -c '%A %U:%G %n' /var/cache/datasetd /var/lib/datasetd
expect 0 grep -E '^(data_roots|metrics_port|log_level):' \
  /etc/datasetd/datasetd.yaml

say "Remove"
apt-get -qq remove -y datasetd >apt.log 2>&1
expect 3 systemctl is-active datasetd.socket datasetd.service
expect 1 test -e /run/datasetd/datasetd.sock
expect 1 test -e /usr/bin/datasetctl
expect 0 ls -l /etc/datasetd/datasetd.yaml
expect 1 python3 -c 'import datasetd'
expect 0 test -d /var/cache/datasetd

say "Purge"
apt-get -qq purge -y datasetd >apt.log 2>&1
left=$(find / -xdev -path /srv -prune -o -path /var/log -prune -o \
  -name '*datasetd*' -print)
[[ -z $left ]] || { printf 'FAILED: left behind:\n%s\n' "$left"; exit 1; }
echo "no file of that name is left"
expect 0 id datasetd
