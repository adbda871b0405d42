"""What system tests share: real processes on loopback, ready lines, logs kept on failure.

    class MyTest(support.SystemTest):
        def test_it(self):
            target = self.start("spate-target", "--listen", "127.0.0.1:0", ready=r"listening on (\\S+)")
            address = target.ready.group(1)

Programs come from the folder in SPATE_BIN (default: build/bin of this repository). Every test has a folder of its
own for their output; it is removed when the test passes, and its place is printed when the test fails. With
SPATE_TEST_LOGS=DIR the folders are made in DIR.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("SPATE_BIN", os.path.join(REPOSITORY, "build", "bin"))
TIMEOUT = 20.0  # seconds; for things that take milliseconds on an idle machine


def program(name):
    """The path of one of our programs."""
    path = os.path.join(BIN, name)
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"{path} is not there; build it, or set SPATE_BIN")
    return path


def free_port(host="127.0.0.1"):
    """A port that was free a moment ago. Prefer port 0 and the ready line where a program can do that."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.bind((host, 0))
        return s.getsockname()[1]


def eventually(condition, what="the condition", timeout=TIMEOUT, every=0.02):
    """Calls condition() until it returns something true, and returns that. Fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what} (last value: {value!r})")
        time.sleep(every)


def without_proxies(env=None):
    """The environment of a child: no SPATE_ flag and no proxy of the caller's leaks into it."""
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith("SPATE_") and not k.lower().endswith("_proxy")}
    clean.update(env or {})
    return clean


class Process:
    """One child process. Standard output is read into `lines` (and NAME.out), standard error goes to NAME.err.

    With `ready`, a regular expression, the constructor returns when a line of standard output matches;
    the match is in `.ready`. It fails, with the end of the standard error, if the process ends before that.
    """

    def __init__(self, name, command, folder, ready=None, env=None, timeout=TIMEOUT, pass_fds=()):
        self.name = name
        self.lines = []
        self._changed = threading.Condition()
        self._closed = False
        self._err_path = os.path.join(folder, name + ".err")
        self._out_path = os.path.join(folder, name + ".out")
        with open(self._err_path, "ab") as err:
            self._child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=err, cwd=folder,
                                           env=without_proxies(env), pass_fds=pass_fds)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.ready = None
        if ready is not None:
            try:
                self.ready = self.wait_for_line(ready, timeout)
            except BaseException:
                self.kill()
                raise

    @property
    def pid(self):
        return self._child.pid

    @property
    def stderr(self):
        with open(self._err_path, encoding="utf-8", errors="replace") as err:
            return err.read()

    @property
    def stdout(self):
        with self._changed:
            return "".join(self.lines)

    def is_running(self):
        return self._child.poll() is None

    def wait_for_line(self, pattern, timeout=TIMEOUT, after=0):
        """The match of the first line, from number `after` on, in which `pattern` is found."""
        deadline = time.monotonic() + timeout
        seen = after
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    seen += 1
                    match = re.search(pattern, line)
                    if match:
                        return match
                left = deadline - time.monotonic()
                if self._closed or left <= 0:
                    why = "its output has ended" if self._closed else f"not within {timeout} s"
                    raise AssertionError(f"{self.name}: no line like {pattern!r}, {why}\n{self.tail()}")
                self._changed.wait(left)

    def signal(self, number):
        self._child.send_signal(number)

    def wait(self, timeout=TIMEOUT):
        """The exit code; negative for a signal's number."""
        try:
            code = self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} (pid {self.pid}) still runs after {timeout} s\n{self.tail()}") from None
        self._reader.join(timeout)
        return code

    def stop(self, timeout=TIMEOUT):
        """SIGTERM, then the exit code."""
        if self.is_running():
            self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self):
        """SIGKILL. Harmless if it has ended."""
        if self.is_running():
            self._child.kill()
        self._child.wait()
        self._reader.join(TIMEOUT)

    def tail(self, count=20):
        """The last lines of standard error, for messages."""
        lines = self.stderr.splitlines()[-count:]
        return "\n".join([f"--- {self.name} standard error ---", *lines])

    def _read(self):
        with open(self._out_path, "ab", buffering=0) as copy, self._child.stdout as pipe:
            for raw in pipe:
                copy.write(raw)
                with self._changed:
                    self.lines.append(raw.decode("utf-8", "replace"))
                    self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class SystemTest(unittest.TestCase):
    """A test with a folder (`self.folder`) and processes that never outlive it."""

    def run(self, result=None):
        result = result or self.defaultTestResult()
        before = len(result.failures) + len(result.errors)
        parent = os.environ.get("SPATE_TEST_LOGS")
        if parent:
            os.makedirs(parent, exist_ok=True)
        self.folder = tempfile.mkdtemp(prefix=self.id().rsplit(".", 1)[-1] + "-", dir=parent)
        self._processes = []
        super().run(result)
        for process in reversed(self._processes):
            process.kill()
        if len(result.failures) + len(result.errors) == before:
            shutil.rmtree(self.folder, ignore_errors=True)
            return result
        print(f"\nlogs of {self.id()} are in {self.folder}", file=sys.stderr)
        for process in self._processes:
            print(process.tail(), file=sys.stderr)
        return result

    def start(self, name, *arguments, label=None, **options):
        """Starts one of our programs (see Process); `label` names its logs if there are several."""
        return self.start_command(label or name, [program(name), *arguments], **options)

    def start_command(self, name, command, **options):
        process = Process(name, command, self.folder, **options)
        self._processes.append(process)
        return process

    def path(self, *parts):
        return os.path.join(self.folder, *parts)


_generated = None


def load_protos():
    """Generates Python code for proto/*.proto by protoc, and makes `from proto import target_pb2` work.

    Only the messages: the grpc_tools of Debian 12 do not know proto3's `optional`. Methods are called by name, see
    unary()."""
    global _generated
    if _generated is None:
        _generated = tempfile.TemporaryDirectory(prefix="spate-protos-")
        folder = os.path.join(REPOSITORY, "proto")
        protos = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".proto"))
        subprocess.run(["protoc", f"-I{REPOSITORY}", f"--python_out={_generated.name}", *protos], check=True)
        sys.path.insert(0, _generated.name)


def unary(channel, method, reply_type):
    """A callable for a unary method, e.g. unary(channel, "spate.target.v1.Stats/Get", target_pb2.StatsReply)."""
    return channel.unary_unary("/" + method, request_serializer=lambda message: message.SerializeToString(),
                               response_deserializer=reply_type.FromString)
