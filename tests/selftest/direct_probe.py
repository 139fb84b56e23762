"""Feeds in the trainer's process, tried before they are built: what they would
cost a training step beside the daemon's feeds, and whether the bits are equal.

    direct_probe.py DEVICE FILE [--part PART [CASE...]]

Writes FILE after each part: {part: answer}. docs/decisions/feeds-in-the-job.md
says what the answers decide. Parts, in the order of their use:

    steps    extra time of the training steps of step_probe, by who makes batches
    memory   what an importer can do to device memory (vmm_probe)
    parity   the same batches from both
    rates    batches a second, nothing trained
    kernels  kernel_probe: small launches, too
    mps      steps of two models under an MPS server of its own

The other process, which owns the samples, is vmm_probe's; direct_plan's plans the launches, which this one makes
by the driver. So nothing of the product is linked into the trainer. Draws
repeat from epoch to epoch, since each plan is made once; the time is the
kernels' all the same.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PARTS = pathlib.Path(__file__).resolve().parent
# Name, seconds it may take. The first decides, should time run out.
LIMITS = [("steps", 200), ("memory", 40), ("parity", 30), ("rates", 50),
          ("kernels", 40), ("mps", 50)]
ALIGNMENT = 256
SEED = 5
ROUNDS = 7


# -- The owner of the samples, and launches of our own -----------------------


class Owner:
    """A process that owns images and labels in device memory."""

    def __init__(self, images, labels, directory, probe=PARTS / "vmm_probe"):
        import numpy as np

        image_bytes = images.nbytes + (-images.nbytes) % ALIGNMENT
        self.labels_offset = image_bytes
        labels = np.asarray(labels, np.int64)
        self.num_samples, self.shape = len(images), images.shape[1:]
        # A label more: kernels read whole words.
        unit = 2 << 20
        self.bytes = -(-(image_bytes + labels.nbytes + 64) // unit) * unit
        path = pathlib.Path(directory) / "owned"
        with open(path, "wb") as file:
            file.write(images.tobytes())
            file.seek(image_bytes)
            file.write(labels.tobytes())
            file.truncate(self.bytes)
        own, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [probe, "owner", str(theirs.fileno()), str(self.bytes), path],
            pass_fds=[theirs.fileno()])
        theirs.close()
        self._socket = own
        _, fds, _, _ = socket.recv_fds(own, 1, 1)
        if not fds:
            raise RuntimeError("the owner of the samples ended")
        self.fd = fds[0]
        path.unlink()

    def close(self):
        os.close(self.fd)
        self._socket.close()
        self._process.wait()


_ACCESS_READ = 1  # CU_MEM_ACCESS_FLAGS_PROT_READ
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


class _MemAccess(ctypes.Structure):
    _fields_ = [("location_type", ctypes.c_int), ("location_id", ctypes.c_int),
                ("flags", ctypes.c_int)]


class Driver:
    """The CUDA driver, in the primary context of device 0, which frameworks
    use, too. A call that fails raises."""

    def __init__(self):
        self._library = ctypes.CDLL("libcuda.so.1")
        self.cuInit(0)
        context = ctypes.c_void_p()
        self.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.cuCtxSetCurrent(context)

    def __getattr__(self, name):
        function = getattr(self._library, name)

        def call(*arguments):
            code = function(*arguments)
            if code != 0:
                raise RuntimeError(f"{name} failed with {code}")

        setattr(self, name, call)
        return call

    def allocate(self, num_bytes):
        address = ctypes.c_uint64()
        self.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(num_bytes))
        return address.value

    def write(self, address, data):
        self.cuMemcpyHtoD_v2(ctypes.c_uint64(address), data,
                             ctypes.c_size_t(len(data)))

    def map_for_reading(self, fd, num_bytes):
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        size, zero = ctypes.c_size_t(num_bytes), ctypes.c_size_t(0)
        self.cuMemImportFromShareableHandle(
            ctypes.byref(handle), ctypes.c_void_p(fd), 1)
        self.cuMemAddressReserve(ctypes.byref(address), size, zero,
                                 ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.cuMemMap(address, size, zero, handle, ctypes.c_uint64(0))
        access = _MemAccess(1, 0, _ACCESS_READ)
        self.cuMemSetAccess(address, size, ctypes.byref(access),
                            ctypes.c_size_t(1))
        return address.value


class Direct:
    """Batches made in this process of an Owner's samples."""

    def __init__(self, owner, transforms, batch_size, num_slots, seed=SEED,
                 is_nhwc=False, planner=PARTS / "direct_plan"):
        """`transforms`: a FieldOptions, as the daemon tells a feed's."""
        self.batch_size = batch_size
        self._driver = driver = Driver()
        self._planner = subprocess.Popen(
            [planner], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        count = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(count), _MULTIPROCESSORS, 0)
        sizes = self._ask(
            transforms=transforms, shape=list(owner.shape), is_nhwc=is_nhwc,
            seed=seed, batch_size=batch_size, num_slots=num_slots,
            num_multiprocessors=count.value)
        self._slot_bytes = sizes["slot_bytes"]
        self._labels_offset = sizes["labels_offset"]
        row_bytes = 8 * batch_size
        source = driver.map_for_reading(owner.fd, owner.bytes)
        self._slots = driver.allocate(num_slots * self._slot_bytes)
        self._indices = driver.allocate(num_slots * row_bytes)
        program = driver.allocate(sizes["program_bytes"])
        pinned = ctypes.c_void_p()
        driver.cuMemHostAlloc(ctypes.byref(pinned),
                              ctypes.c_size_t(num_slots * row_bytes), 0)
        self._pinned = pinned.value
        with tempfile.TemporaryDirectory() as directory:
            files = [os.path.join(directory, name)
                     for name in ("program", "kernels")]
            self._ask(
                source=source, labels=source + owner.labels_offset,
                slots=self._slots, indices=self._indices, program=program,
                scratch=driver.allocate(max(256, sizes["scratch_bytes"])),
                program_file=files[0], kernels_file=files[1])
            data = [pathlib.Path(file).read_bytes() for file in files]
        driver.write(program, data[0])
        module = ctypes.c_void_p()
        driver.cuModuleLoadData(ctypes.byref(module), data[1])
        self._functions = {}
        for name in ("ChainKernel", "AugmentKernel"):
            function = ctypes.c_void_p()
            driver.cuModuleGetFunction(ctypes.byref(function), module,
                                       name.encode())
            self._functions[name] = function
        self._plans = {}

    def close(self):
        self._planner.stdin.close()
        self._planner.wait()

    def _ask(self, **request):
        self._planner.stdin.write(json.dumps(request).encode() + b"\n")
        self._planner.stdin.flush()
        answer = json.loads(self._planner.stdout.readline() or
                            '{"error": "the planner ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def indices(self, host_row, slot, indices, stream=0):
        """Brings `indices`, int64 of NumPy, of whole batches to the rows from
        `slot` on, by the host's rows from `host_row` on, which must not be in
        use."""
        row_bytes = 8 * self.batch_size
        host = self._pinned + host_row * row_bytes
        ctypes.memmove(host, indices.ctypes.data, indices.nbytes)
        self._driver.cuMemcpyHtoDAsync_v2(
            ctypes.c_uint64(self._indices + slot * row_bytes),
            ctypes.c_void_p(host), ctypes.c_size_t(indices.nbytes),
            ctypes.c_void_p(stream))

    def launch(self, slot, num_batches, epoch=0, stream=0):
        key = slot, num_batches, epoch
        if key not in self._plans:
            launches = []
            for one in self._ask(first_slot=slot, num_batches=num_batches,
                                 epoch=epoch):
                data = ctypes.create_string_buffer(
                    bytes.fromhex(one["parameters"]))
                launches.append((
                    self._functions[one["kernel"]], one["blocks"],
                    one["threads"],
                    (ctypes.c_void_p * 1)(ctypes.addressof(data)), data))
            self._plans[key] = launches
        for function, blocks, threads, parameters, _ in self._plans[key]:
            self._driver.cuLaunchKernel(
                function, blocks, 1, 1, threads, 1, 1, 0,
                ctypes.c_void_p(stream), parameters, None)

    def address(self, slot):
        """Of the images, and of the labels."""
        first = self._slots + slot * self._slot_bytes
        return first, first + self._labels_offset

    def read(self, slot):
        """(images, labels) of a slot as bytes, when all work is done."""
        to = ctypes.create_string_buffer(self._slot_bytes)
        self._driver.cuCtxSynchronize()
        self._driver.cuMemcpyDtoH_v2(
            to, ctypes.c_uint64(self.address(slot)[0]),
            ctypes.c_size_t(self._slot_bytes))
        labels = self._labels_offset
        return to.raw[:labels], to.raw[labels:labels + 8 * self.batch_size]

    def stream(self, is_lowest):
        low, high = ctypes.c_int(), ctypes.c_int()
        self._driver.cuCtxGetStreamPriorityRange(ctypes.byref(low),
                                                 ctypes.byref(high))
        stream = ctypes.c_void_p()
        self._driver.cuStreamCreateWithPriority(
            ctypes.byref(stream), 1, (low if is_lowest else high).value)
        return stream.value


def feed_transforms(client, feed_id):
    """What a feed does with its images, as its job sent it."""
    return client._session.call("GetFeedTransforms", feed_id=feed_id)[
        "fields"]["image"]


def newest_feed(client):
    own = [feed for feed in client.list_feeds()
           if int(feed["pid"]) == os.getpid()]
    return max(own, key=lambda feed: int(feed["feed_id"]))


# -- Who makes batches --------------------------------------------------------


class _Memory:
    """Memory as torch takes it."""

    def __init__(self, address, shape, kind):
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": shape, "typestr": kind,
            "version": 3}


class DirectSource:
    """Batches of Direct, `at_once` by a launch, in the order of torch.randperm.

    On a stream of its own, or on the training stream."""

    def __init__(self, torch, direct, owner, shape, kind, at_once, priority=None,
                 is_nhwc=False):
        self._torch, self._direct, self._owner = torch, direct, owner
        self._k = at_once
        side = None if priority is None else direct.stream(priority == "lowest")
        self._side = side and torch.cuda.ExternalStream(side)
        self._batches = []
        for slot in range(2 * at_once):
            images, labels = direct.address(slot)
            n, channels, height, width = shape
            placed = (n, height, width, channels) if is_nhwc else shape
            image = torch.as_tensor(_Memory(images, placed, kind),
                                    device="cuda")
            if is_nhwc:
                image = image.permute(0, 3, 1, 2)
            self._batches.append((image, torch.as_tensor(
                _Memory(labels, (n,), "<i8"), device="cuda")))
        self._copied = [torch.cuda.Event(), torch.cuda.Event()]
        self._ready = [torch.cuda.Event(), torch.cuda.Event()]
        self._used = [torch.cuda.Event(), torch.cuda.Event()]
        self._order = None
        self._count = 0

    def _next_indices(self):
        size = self._k * self._direct.batch_size
        if self._order is None or len(self._order) < size:
            order = self._torch.randperm(self._owner.num_samples)
            while len(order) < size:
                order = self._torch.cat([order, order])
            self._order = order
        taken, self._order = self._order[:size], self._order[size:]
        return taken.numpy()

    def _launch(self, group):
        torch, half = self._torch, group % 2
        current = torch.cuda.current_stream()
        stream = self._side or current
        # The host's rows of this half may still be copied.
        self._copied[half].synchronize()
        if self._side is not None:
            self._side.wait_event(self._used[half])
        first = half * self._k
        self._direct.indices(first, first, self._next_indices(),
                             stream.cuda_stream)
        self._copied[half].record(stream)
        self._direct.launch(first, self._k, 0, stream.cuda_stream)
        self._ready[half].record(stream)

    def next(self):
        group, within = divmod(self._count, self._k)
        if within == 0:
            if self._count == 0:
                self._launch(0)
            else:
                self._used[(group - 1) % 2].record()
            if self._side is not None:
                self._launch(group + 1)
                self._torch.cuda.current_stream().wait_event(
                    self._ready[group % 2])
            elif self._count:
                self._launch(group)
        self._count += 1
        return self._batches[group % 2 * self._k + within]


# -- Steps --------------------------------------------------------------------


def _arrays(size):
    import numpy as np

    random = np.random.default_rng(0)
    count, side = (10000, 32) if size == 32 else (512, 256)
    images = random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return images, np.arange(count, dtype=np.int64) % 10


def _ops(size):
    from datasetd import transforms as T

    crop = (T.RandomCrop(32, padding=4) if size == 32 else
            T.RandomResizedCrop(size))
    return [crop, T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True),
            T.Normalize([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])]


def _prefetch_before(case):
    """What was made ahead by default on every GPU: 64 MiB."""
    if case["prefetch"] is not None:
        return case["prefetch"]
    slot = case["batch_size"] * 3 * case["size"] ** 2 * 4
    return min(32, max(4, (64 << 20) // slot))


def _set_lends_small(value):
    from datasetd._batches import frameworks

    frameworks.Framework.lends_small = value


def _endless(loader):
    while True:
        yield from loader


def _resident(torch, workloads, peers, case, directory):
    workload = dataclasses.replace(workloads.WORKLOADS["W1"],
                                   num_samples=10000,
                                   batch_size=case["batch_size"])
    folder = pathlib.Path(directory) / "resident"
    if not folder.exists():
        workload.write(folder)
    return peers.open_peer("resident", workload, str(folder), "cuda", None)


def measure_case(torch, client, dataset, owner, case, directory, only=None):
    """{mode: what a step costs}, in turns."""
    import datasetd
    import probes

    size, batch_size = case["size"], case["batch_size"]
    k = 8 if size == 32 else 2
    shape = (batch_size, 3, size, size)
    loaders, sources = [], {}

    def open_feed(prefetch, lends_small):
        from datasetd._batches import frameworks

        before = frameworks.Framework.lends_small
        if not lends_small:
            _set_lends_small(False)
        loader = datasetd.DataLoader(
            dataset, batch_size=batch_size, shuffle=True, drop_last=True,
            seed=SEED, transforms=_ops(size), framework="torch", timeout=60,
            prefetch=prefetch)
        loaders.append(loader)
        batches = _endless(loader)
        next(batches)
        _set_lends_small(before)
        return batches, newest_feed(client)["feed_id"]

    step = probes.make_step(
        torch, probes.make_model(torch, case["model"]).to("cuda"))
    replay = probes.make_graph(torch, step, "cuda", batch_size, size)
    feeds = {}
    batches, feeds["feed_before"] = open_feed(_prefetch_before(case), False)
    sources["feed_before"] = lambda b=batches: replay(next(b))
    batches, feeds["feed"] = open_feed(case["prefetch"], True)
    sources["feed"] = lambda b=batches: replay(next(b))
    transforms = feed_transforms(client, feeds["feed"])
    constant = [tensor.clone() for tensor in next(batches)]
    sources["constant"] = lambda: replay(constant)

    def direct(at_once, priority=None):
        source = DirectSource(
            torch, Direct(owner, transforms, batch_size, 2 * at_once), owner,
            shape, "<f4", at_once, priority)
        return lambda: replay(source.next())

    sources["direct_1"] = direct(1)
    sources[f"direct_{k}"] = direct(k)
    sources[f"direct_{k}_side_lowest"] = direct(k, "lowest")
    sources[f"direct_{k}_side_highest"] = direct(k, "highest")
    sources["direct_in_graph"] = _captured(torch, step, owner, transforms,
                                           batch_size, shape)
    if size == 32:
        from tests.benchmarks.compare import peers, workloads

        resident = _resident(torch, workloads, peers, case, directory)
        sources["resident"] = lambda: replay(next(resident))
    if only:
        sources = {name: source for name, source in sources.items()
                   if name == "constant" or name in only}
    answer = _in_turns(torch, sources, case["steps"],
                       case["is_synchronised"])
    launched = {feed["feed_id"]: feed for feed in client.list_feeds()}
    for mode, feed_id in feeds.items():
        if mode in answer:
            feed = launched[feed_id]
            answer[mode].update(num_launches=int(feed["num_launches"]),
                                num_batches=int(feed["num_batches"]),
                                num_slots=int(feed["num_slots"]))
    for loader in loaders:
        loader.close()
    return answer


def _captured(torch, step, owner, transforms, batch_size, shape):
    """A step whose graph begins with the kernels, in a slot of its own."""
    rows = 16
    direct = Direct(owner, transforms, batch_size, rows)
    images, labels = direct.address(0)
    batch = (torch.as_tensor(_Memory(images, shape, "<f4"), device="cuda"),
             torch.as_tensor(_Memory(labels, (batch_size,), "<i8"),
                             device="cuda"))
    order = torch.randperm(owner.num_samples).repeat(
        1 + rows * batch_size // owner.num_samples).numpy()
    direct.indices(0, 0, order[:batch_size])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            direct.launch(0, 1, 0, stream.cuda_stream)
            step(batch)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        direct.launch(0, 1, 0, torch.cuda.current_stream().cuda_stream)
        step(batch)
    copied = [torch.cuda.Event() for _ in range(rows)]
    count = [0]

    def run():
        row = count[0] % rows
        count[0] += 1
        copied[row].synchronize()
        current = torch.cuda.current_stream()
        direct.indices(row, 0,
                       order[row * batch_size:(row + 1) * batch_size],
                       current.cuda_stream)
        copied[row].record(current)
        graph.replay()

    return run


def _in_turns(torch, sources, steps, is_synchronised):
    def run(source):
        torch.cuda.synchronize()
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(steps):
            source()
            if is_synchronised:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return ((time.perf_counter() - start) / steps,
                (time.process_time() - cpu) / steps)

    for source in sources.values():
        run(source)  # warms up
    names = list(sources)
    times = {name: [] for name in names}
    for i in range(ROUNDS):
        turn = names[i % len(names):] + names[:i % len(names)]
        for name in turn:
            times[name].append(run(sources[name]))
    answer = {}
    for name in names:
        extra = [1e3 * (own[0] - constant[0])
                 for own, constant in zip(times[name], times["constant"])]
        low, median, high = statistics.quantiles(extra, n=4)
        answer[name] = {
            "ms": 1e3 * statistics.median(t for t, _ in times[name]),
            "extra_ms": median, "extra_ms_quartiles": [low, high],
            "cpu_us": 1e6 * statistics.median(cpu for _, cpu in times[name]),
        }
    constant = answer["constant"]["ms"]
    for row in answer.values():
        row["inflation"] = row["ms"] / constant
    return answer


def steps_part(device, directory, models=(), only=None):
    import datasetd
    import probes
    import torch

    answer = []
    with datasetd.start_local(device=device) as daemon, \
            daemon.connect() as client:
        datasets, owners = {}, {}
        # The small and the large one first.
        cases = [case for case in probes.STEP_CASES if case["is_graph"]]
        cases.sort(key=lambda c: ("small_cnn", "resnet50", "resnet18").index(
            c["model"]))
        for case in cases:
            if models and (case["model"] not in models
                           or case["is_synchronised"]):
                continue
            size = case["size"]
            if size not in datasets:
                images, labels = _arrays(size)
                datasets[size] = client.push_dataset(
                    f"steps-{size}", {"image": images, "label": labels},
                    device=device)
                owners[size] = Owner(images, labels, directory)
            answer.append({**case, "modes": measure_case(
                torch, client, datasets[size], owners[size], case, directory,
                only)})
            _say({"rows": answer})
        for owner in owners.values():
            owner.close()
    return {"rows": answer}


# -- Parity and rates ---------------------------------------------------------


def _kind(dtype):
    return {"float32": "<f4", "float16": "<f2"}[dtype]


def _each_workload(device, directory, names, measure):
    """{workload: measure(workload, loader, direct source)}."""
    import datasetd
    import torch

    from tests.benchmarks.compare import workloads

    answer = {}
    with datasetd.start_local(device=device) as daemon, \
            daemon.connect() as client:
        for name in names:
            workload = workloads.WORKLOADS[name]
            workload = dataclasses.replace(
                workload, num_samples=min(workload.num_samples, 10000))
            fields = workload.arrays()
            dataset = client.push_dataset(
                f"{name}-{os.getpid()}", fields, device=device)
            owner = Owner(fields["image"], fields["label"], directory)
            is_nhwc = workload.layout == "NHWC"
            with datasetd.DataLoader(
                    dataset, batch_size=workload.batch_size, shuffle=True,
                    drop_last=True, seed=SEED, timeout=60,
                    transforms=workload.transforms(), layout=workload.layout,
                    framework="torch") as loader:
                batches = _endless(loader)
                first = next(batches)
                feed = newest_feed(client)
                k = max(1, min(8, 2048 // workload.batch_size))
                direct = Direct(
                    owner, feed_transforms(client, feed["feed_id"]),
                    workload.batch_size, 2 * k, is_nhwc=is_nhwc)
                source = DirectSource(
                    torch, direct, owner, tuple(first.image.shape),
                    _kind(workload.dtype), k, "lowest", is_nhwc)
                answer[name] = measure(torch, workload, batches, direct,
                                       source)
            owner.close()
            _say(answer)
    return answer


def _is_same(torch, workload, batches, direct, source):
    """Of 20 batches of the feed, made again from their indices."""
    num_equal = 0
    for _ in range(20):
        batch = next(batches)
        direct.indices(0, 0, batch.indices.cpu().numpy())
        direct.launch(0, 1, batch.epoch)
        torch.cuda.synchronize()
        image, label = source._batches[0]
        num_equal += (torch.equal(image, batch.image)
                      and torch.equal(label, batch.label))
    return {"batches": 20, "equal": num_equal}


def _rates(torch, workload, batches, direct, source):
    def rate(take):
        for _ in range(50):
            take()
        torch.cuda.synchronize()
        num, start = 0, time.perf_counter()
        while time.perf_counter() - start < 1.0:
            for _ in range(8):
                take()
            num += 8
        torch.cuda.synchronize()
        return num * workload.batch_size / (time.perf_counter() - start)

    answer = {"feed": [], "direct": []}
    for _ in range(2):
        answer["feed"].append(rate(lambda: next(batches)))
        answer["direct"].append(rate(source.next))
    return answer


# -- All parts ----------------------------------------------------------------


def _say(answer):
    """The last line of a part that is cut counts."""
    print(json.dumps(answer), flush=True)


def _program(name, *arguments):
    done = subprocess.run([PARTS / name, *arguments], stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def _under_mps(device, directory):
    control = "nvidia-cuda-mps-control"
    if shutil.which(control) is None:
        return {"not_measured": f"no {control} here"}
    environment = dict(os.environ)
    for name in ("PIPE", "LOG"):
        folder = pathlib.Path(directory) / name.lower()
        folder.mkdir()
        environment[f"CUDA_MPS_{name}_DIRECTORY"] = str(folder)
    started = subprocess.run([control, "-d"], env=environment,
                             stderr=subprocess.PIPE)
    if started.returncode != 0:
        return {"not_measured": f"{control}: {started.stderr.decode()[-300:]}"}
    try:
        return _run_part(device, "steps", 45, ["small_cnn", "resnet50"],
                         environment)
    finally:
        subprocess.run([control], input=b"quit\n", env=environment)


def run_part(device, name, cases):
    with tempfile.TemporaryDirectory(prefix="dd") as directory:
        if name == "memory":
            return _program("vmm_probe")
        if name == "kernels":
            return _program("kernel_probe")
        if name == "mps":
            return _under_mps(device, directory)
        sys.path.insert(0, str(PARTS))
        if name == "steps":
            return steps_part(device, directory, cases,
                              ["feed", "direct_8", "direct_2"] if cases
                              else None)
        names = ["W1", "W6"] if name == "parity" else ["W1", "W2", "W6", "W10"]
        return _each_workload(device, directory, names,
                              _is_same if name == "parity" else _rates)


def _run_part(device, name, seconds, cases=(), environment=None):
    """A part in a process of its own: its last line, or why there is none."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, __file__, device, "-", "--part", name, *cases],
            stdout=log, stderr=errors, env=environment)
        try:
            code = process.wait(seconds)
            why = f"ended with {code}" if code else ""
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            why = f"not done in {seconds} s"
        log.seek(0)
        lines = log.read().decode().splitlines()
        errors.seek(0)
        tail = errors.read()[-600:].decode(errors="replace")
    answer = {}
    for line in reversed(lines):
        try:
            answer = json.loads(line)
            break
        except ValueError:
            continue
    if why and answer:
        answer["cut"] = why
    return answer or {"not_measured": f"{why}: {tail}"}


def main():
    device, path = sys.argv[1:3]
    if sys.argv[3:4] == ["--part"]:
        _say(run_part(device, sys.argv[4], sys.argv[5:]))
        return
    answers = {}
    for name, seconds in LIMITS:
        answers[name] = _run_part(device, name, seconds)
        with open(path + ".new", "w") as file:
            json.dump(answers, file, indent=1)
        os.replace(path + ".new", path)
        print(f"{name}: {json.dumps(answers[name])[:200]}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
