"""The processes of a bench run: the sink, and the generators that flood it.

Every generator is a subclass of Generator that knows how it is started and what it says of itself at its
end. Measuring is the same for all of them (run.py): CPU time and memory from /proc, requests from the sink.

Children die with this process whatever happens: by stop_all(), and by PR_SET_PDEATHSIG where even that
does not run.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

# One cheap call: CallRequest{call: [{add: [{number: 40}, {number: 2}]}]} behind gRPC's five bytes. The
# same 29 bytes go out from all generators.
METHOD = "spate.target.v1.Calls/Call"
MESSAGE = {"call": [{"add": [40, 2]}]}
BODY = bytes.fromhex("0000000018" "0a16" "0a09210000000000004440" "0a09210000000000000040")

START_SECONDS = 120  # until all connections stand and answers come; long, for runs under valgrind
END_SECONDS = 120

_libc = ctypes.CDLL(None)
_children = []


class BenchError(Exception):
    """What went wrong, in words for the user."""


class Child:
    """A child process, pinned to one core, whose standard output is read by lines with a deadline."""

    def __init__(self, command, core, log):
        self.name = os.path.basename(command[0])
        self.log = log

        def in_child():
            os.sched_setaffinity(0, {core})
            _libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG

        with open(log, "ab") as errors:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=errors, preexec_fn=in_child)
        self.unread = b""
        _children.append(self)

    @property
    def pid(self):
        return self.process.pid

    def fail(self, what):
        tail = pathlib.Path(self.log).read_text(errors="replace")[-600:].strip()
        raise BenchError(f"{self.name} {what}" + (f"; it said:\n{tail}" if tail else ""))

    def line(self, seconds):
        """The next line of its output."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.fail(f"printed no line within {seconds} s")
            got = os.read(self.process.stdout.fileno(), 65536)
            if not got:
                self.fail(f"ended (exit code {self.process.wait()}) before it printed the line waited for")
            self.unread += got
        line, self.unread = self.unread.split(b"\n", 1)
        return line.decode()

    def wait_for_line(self, pattern, seconds=30):
        deadline = time.monotonic() + seconds
        while True:
            if match := re.search(pattern, self.line(max(0.001, deadline - time.monotonic()))):
                return match

    def rest(self, seconds=END_SECONDS):
        """Everything it prints until it ends, which it must do by itself."""
        try:
            out, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.fail(f"did not end within {seconds} s")
        _children.remove(self)
        return (self.unread + out).decode(errors="replace")

    def traced(self):
        """The process meant: strace's child where strace stands before it, otherwise itself."""
        if self.name != "strace":
            return self.pid
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[0]) if children else self.pid

    def stop(self):
        """SIGTERM, and what it printed; SIGKILL if it does not heed it."""
        if self.process.poll() is None:
            os.kill(self.traced(), signal.SIGTERM)
        try:
            return self.rest(seconds=20)
        except BenchError:
            self.kill()
            raise

    def kill(self):
        if self in _children:
            _children.remove(self)
        if self.process.poll() is None:
            if (traced := self.traced()) != self.pid:
                os.kill(traced, signal.SIGKILL)
            self.process.kill()
            self.process.wait()


def stop_all():
    for child in list(_children):
        child.kill()


@dataclasses.dataclass
class Place:
    """Where things are."""

    programs: pathlib.Path  # spate, spate-controller, spate-agent
    peers: pathlib.Path     # bench-sink, bench-floor, bench-grpcpp
    sink_core: int
    generator_core: int
    scratch: pathlib.Path = dataclasses.field(
        default_factory=lambda: pathlib.Path(tempfile.mkdtemp(prefix="spate-bench-")))

    def body_file(self):
        path = self.scratch / "body"
        path.write_bytes(BODY)
        return path

    def log(self, name):
        return self.scratch / f"{name}.log"

    def remove(self):
        shutil.rmtree(self.scratch, ignore_errors=True)


class Sink:
    def __init__(self, place):
        self.child = Child([str(place.peers / "bench-sink"), "--port", "0"], place.sink_core,
                           place.log("sink"))
        self.port = int(self.child.wait_for_line(r"listening on 127\.0\.0\.1:(\d+)")[1])

    def counts(self):
        os.kill(self.child.pid, signal.SIGUSR1)
        return json.loads(self.child.line(10))


class Generator:
    """One kind of generator. `prefix` is a tracer to run it under (strace, valgrind)."""

    name = ""

    def __init__(self, place):
        self.place = place
        self.child = None

    def missing(self):
        """Why it cannot run here, or None."""
        return None

    def begin(self, port, connections, seconds, prefix=()):
        """Starts it; the flood lasts `seconds` once the connections stand."""
        command = [*prefix, *self.command(port, connections, seconds)]
        self.child = Child(command, self.place.generator_core, self.place.log(self.name))

    def command(self, port, connections, seconds):
        raise NotImplementedError

    def end(self):
        """Waits for its end; the requests it says were answered."""
        return self.answered(self.child.rest())

    def answered(self, output):
        return json.loads(output)["requests"]


class Floor(Generator):
    name = "floor"
    program = "bench-floor"

    def missing(self):
        path = self.place.peers / self.program
        return None if path.exists() else f"{path} is not built (cmake -DSPATE_BENCH=ON)"

    def command(self, port, connections, seconds):
        return [str(self.place.peers / self.program), "--port", str(port), "--connections",
                str(connections), "--seconds", str(seconds)]


class GrpcLibrary(Floor):
    name = "grpc++"
    program = "bench-grpcpp"


class H2load(Generator):
    name = "h2load"

    def missing(self):
        return None if shutil.which("h2load") else "h2load is not installed (apt-get install nghttp2-client)"

    def command(self, port, connections, seconds):
        return [shutil.which("h2load"), "-t1", f"-c{connections}", "-m1", "-D", str(seconds), "-d",
                str(self.place.body_file()), "-H", "content-type: application/grpc", "-H", "te: trailers",
                f"http://127.0.0.1:{port}/{METHOD}"]

    def answered(self, output):
        match = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", output)
        if not match:
            self.child.fail("printed no summary")
        return int(match[1])


class SpateAgent(Generator):
    """A controller (on the sink's core, so that it takes no time from the agent), one fresh agent per
    flood, and `spate run`, as users do it."""

    name = "spate-agent"

    def __init__(self, place):
        super().__init__(place)
        self.controller = None
        self.address = ""
        self.run = None

    def missing(self):
        gone = [name for name in ("spate", "spate-controller", "spate-agent")
                if not (self.place.programs / name).exists()]
        return f"{', '.join(gone)} not in {self.place.programs} (./dev build)" if gone else None

    def start_controller(self):
        store = self.place.scratch / "controller.sqlite"
        self.controller = Child([str(self.place.programs / "spate-controller"), "--listen", "127.0.0.1:0",
                                 "--store", str(store)], self.place.sink_core, self.place.log("controller"))
        self.address = self.controller.wait_for_line(r"listening on (\S+)")[1]

    def begin(self, port, connections, seconds, prefix=()):
        if self.controller is None:
            self.start_controller()
        self.child = Child([*prefix, str(self.place.programs / "spate-agent"), "--controller", self.address,
                            "--name", "bench", "--state", str(self.place.scratch / "agent-state")],
                           self.place.generator_core, self.place.log(self.name))
        self.child.wait_for_line("connected to", START_SECONDS)
        plan = self.place.scratch / "plan.json"
        plan.write_text(json.dumps({
            "name": "bench",
            "target": {"url": f"grpc://127.0.0.1:{port}"},
            "call": {"method": METHOD, "message": MESSAGE, "timeout": "60s"},
            "load": {"model": "closed", "connections": connections},
            "agents": {"count": 1, "threads": 1},
            "phases": [{"name": "flood", "for": f"{seconds}s"}],
        }))
        self.run = Child([str(self.place.programs / "spate"), "run", str(plan), "--controller", self.address,
                          "-o", "json"], self.place.sink_core, self.place.log("spate-run"))

    def end(self):
        output = self.run.rest()
        self.child.stop()
        try:
            summary = json.loads(output)
        except json.JSONDecodeError:
            self.run.fail(f"printed no summary (exit code {self.run.process.returncode})")
        requests = summary["requests"]
        if requests["sent"] != requests["ok"]:
            raise BenchError(f"spate-agent: not all requests were answered ok: {requests}")
        return requests["ok"]
