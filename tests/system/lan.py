"""A virtual LAN for tests that break it: client PCs, a server PC and a controller PC in network namespaces.

Like deploy/lab/lab, but every PC's program can be killed, stopped, started again and cut off by itself:

    class MyTest(lan.LanTest):
        def test_it(self):
            with lan.Lan(self, pcs=3) as net:
                net.start_all()
                net.pcs[0].kill()
                net.pcs[0].start()

Addresses: server 10.77.0.100 (grpcs on 7443, grpc on 7000, statistics on 7001), control 10.77.0.200, client PCs
10.77.0.1 …. Every stream of our own is mutual TLS.
Everything is in namespaces named spate-PID-…, removed at the end, whatever happened.
"""

import contextlib
import os
import platform
import signal
import subprocess
import sys

import cluster
import support

SERVER = "10.77.0.100"
CONTROL = "10.77.0.200"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
FAKETIME = f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketimeMT.so.1"  # package libfaketime


def why_no_namespaces():
    """What keeps this machine from running programs in network namespaces; empty if nothing does."""
    name = f"spate-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return made.stderr.strip()
    ran = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ran.stderr.strip() if ran.returncode != 0 else ""


def skip_without_namespaces():
    """Ends the program with ctest's code for a skipped test where namespaces cannot be entered."""
    reason = why_no_namespaces()
    if reason:
        print(f"skipped: this needs root, network namespaces, and a root folder that is a mount point: {reason}",
              file=sys.stderr)
        sys.exit(SKIPPED)


def namespaces():
    return set(subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split())


def run(*command):
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


class Pc:
    """A PC: a namespace, a cable to the switch, and one program that can be started again and again."""

    def __init__(self, lan, name, address, command, ready):
        self.lan, self.name, self.address = lan, name, address
        self.command, self.ready = command, ready
        self.namespace = f"{lan.prefix}-{name}"
        self.process = None
        self.starts = 0
        self.clock = lan.test.path(f"clock-{name}")  # how far its wall clock is off, see step_clock()
        self.set_clock("+0")
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", lan.switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns",
            self.namespace)
        run("ip", "-n", lan.switch, "link", "set", name, "master", "br0", "up")
        run("ip", "-n", self.namespace, "address", "add", f"{address}/24", "dev", "eth0")
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        run("ip", "-n", self.namespace, "link", "set", "eth0", "up")

    # --- its program

    def start(self, wait=True, command=None):
        """Starts the program (again), by another command if one is given; with `wait`, returns when it has said that it
        is ready."""
        self.starts += 1
        label = self.name if self.starts == 1 else f"{self.name}-{self.starts}"
        self.process = self.start_beside(label, command or self.command, ready=self.ready if wait else None,
                                         env=self._faked_clock() if self.lan.fakes_clocks else None)
        return self.process

    def start_beside(self, label, command, **options):
        """Another program on this PC."""
        # `exec` in nsenter's place: the pid is the program's own, so that signals reach it.
        return self.lan.test.start_command(label, ["ip", "netns", "exec", self.namespace, *command], **options)

    def kill(self):
        self.process.kill()

    def freeze(self):
        self.process.signal(signal.SIGSTOP)

    def thaw(self):
        self.process.signal(signal.SIGCONT)

    # --- its wall clock

    def set_clock(self, offset):
        """So far from the true time from now on, for a program on a Lan with fakes_clocks: "+3600", "-3600", "+0"."""
        fresh = self.clock + ".new"
        with open(fresh, "w", encoding="ascii") as f:
            f.write(offset + "\n")
        os.rename(fresh, self.clock)

    def _faked_clock(self):
        timers = os.path.join(support.BIN, "libtrue_timers.so")
        return {"LD_PRELOAD": f"{timers}:{FAKETIME}", "FAKETIME_TIMESTAMP_FILE": self.clock, "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DISABLE_SHM": "1", "NO_FAKE_STAT": "1"}

    # --- its cable

    def unplug(self):
        run("ip", "-n", self.lan.switch, "link", "set", self.name, "down")

    def plug_in(self):
        run("ip", "-n", self.lan.switch, "link", "set", self.name, "up")

    def filter(self, *rules):
        """nftables rules for what leaves this PC (chain output) and what reaches it (chain input)."""
        text = "table inet fault\ndelete table inet fault\ntable inet fault {\n"
        for hook in ("input", "output"):
            text += f"  chain {hook} {{ type filter hook {hook} priority 0;\n"
            text += "".join(f"    {rule}\n" for chain, rule in rules if chain == hook) + "  }\n"
        subprocess.run(["ip", "netns", "exec", self.namespace, "nft", "-f", "-"], input=text + "}\n", text=True,
                       check=True, capture_output=True)

    def open_up(self):
        """No rules any more."""
        self.filter()


class Lan:
    """Builds the network at once; programs start by start_all() or one by one."""

    def __init__(self, test, pcs, *, target=(), agent=(), controller=(), store=None, fakes_clocks=False):
        """`target`, `agent`, `controller`: more flags of these programs."""
        self.test = test
        self.fakes_clocks = fakes_clocks
        self.prefix = f"spate-{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self.store = store or test.path("store.sqlite")
        run("ip", "netns", "add", self.switch)
        try:
            run("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
            run("ip", "-n", self.switch, "link", "set", "br0", "up")
            self._make_pcs(pcs, target, agent, controller)
        except BaseException:
            self.close()
            raise

    def _make_pcs(self, count, target, agent, controller):
        identity = self._issue_certificates(count)
        self.control = Pc(self, "control", CONTROL,
                          [support.program("spate-controller"), "--listen", f"{CONTROL}:7070", "--store", self.store,
                           *identity("controller", "main"), *controller],
                          r"^spate-controller listening on (\S+)$")
        self.server = Pc(self, "server", SERVER,
                         [support.program("spate-target"), "--listen", f"{SERVER}:7443", "--stats", f"{SERVER}:7001",
                          "--listen-plain", "127.0.0.1:7000", *identity("target", "main"), *target],
                         r"^spate-target listening on ")
        self._let_plain_connections_in()
        self.pcs = []
        for i in range(1, count + 1):
            name = f"pc-{i:02d}"
            self.pcs.append(Pc(self, name, f"10.77.0.{i}",
                               [support.program("spate-agent"), "--controller", f"{CONTROL}:7070", "--name", name,
                                "--state", self.test.path(f"state-{name}"), "--allow", f"{SERVER}/32:7000-7443",
                                *identity("agent", name), *agent],
                               r"^spate-agent \S+ connected to \S+$"))

    def _let_plain_connections_in(self):
        """As docs/operating.md says: the plain port is loopback's, and root forwards to it."""
        run("ip", "netns", "exec", self.server.namespace, "sysctl", "-qw", "net.core.somaxconn=4096",
            "net.ipv4.conf.eth0.route_localnet=1")
        rules = ("table ip spate_plain {\n  chain in {\n    type nat hook prerouting priority dstnat;\n"
                 f"    ip daddr {SERVER} tcp dport 7000 dnat to 127.0.0.1:7000\n  }}\n}}\n")
        subprocess.run(["ip", "netns", "exec", self.server.namespace, "nft", "-f", "-"], input=rules, text=True,
                       check=True, capture_output=True)

    def _issue_certificates(self, count):
        folder = self.test.path("pki")
        spate = support.program("spate")

        def issue(role, name, *more):
            run(spate, "pki", "issue", "--dir", folder, "--role", role, "--name", name, "--days", "7", *more)

        run(spate, "pki", "init", "--dir", folder)
        issue("controller", "main", "--host", CONTROL)
        issue("target", "main", "--host", SERVER)
        issue("operator", "main")
        for i in range(1, count + 1):
            issue("agent", f"pc-{i:02d}")

        def flags(role, name):
            stem = os.path.join(folder, f"{role}-{name}")
            return ["--ca", os.path.join(folder, "ca.crt"), "--cert", stem + ".crt", "--key", stem + ".key"]

        self.operator = flags("operator", "main")
        return flags

    def start_all(self):
        self.control.start()
        self.server.start()
        for pc in self.pcs:
            pc.start(wait=False)
        for pc in self.pcs:
            pc.process.wait_for_line(pc.ready)

    def client(self, *arguments, label="client"):
        """Any verb of `spate`, on the controller's PC; not waited for."""
        return self.test.start_command(label, ["ip", "netns", "exec", self.control.namespace,
                                               support.program("spate"), *arguments,
                                               "--controller", f"{CONTROL}:7070", *self.operator])

    def close(self):
        ours = [name for name in namespaces() if name.startswith(self.prefix + "-")]
        for name in ours:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for name in ours:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.close()


class LanTest(cluster.ClusterTest):
    """Tests on a Lan; only there where namespaces can be entered."""
