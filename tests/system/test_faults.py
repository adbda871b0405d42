#!/usr/bin/python3
"""Real faults on a virtual LAN: one controller, one target and eight agents in namespaces of their own, one run, and
faults one after the other, several at once on different PCs. After the last one has healed, the load must be back on
every agent within 10 s; after the end nothing may be missing or stored twice, and the balance may not be UNBALANCED.

    sudo tests/system/test_faults.py                          # 60 faults
    sudo SPATE_FAULTS=1000 tests/system/test_faults.py        # a thousand, in about 35 minutes
    sudo SPATE_FAULT_SEED=4711 tests/system/test_faults.py    # the schedule of that seed again

The schedule is drawn from the seed before anything starts, and printed with it.
"""

import contextlib
import heapq
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
import unittest

import cluster
import lan
import support

FAULTS = int(os.environ.get("SPATE_FAULTS", "60"))
SEED = int(os.environ.get("SPATE_FAULT_SEED", str(random.SystemRandom().randrange(1 << 32))))
PCS = 8
EVERY = 2.0          # seconds from one fault to the next
BACK_WITHIN = 10.0   # seconds from the last healing to load on every agent
SETTLE = 4.0         # of a PC between two faults
STATE_BYTES = 16 << 20
CGROUPS = "/sys/fs/cgroup/memory"


class Fault:
    """What is done to a PC, and undone after `hold` seconds."""

    def __init__(self, number, at, kind, pc, hold, detail):
        self.number, self.at, self.kind, self.pc, self.hold, self.detail = number, at, kind, pc, hold, detail

    def __str__(self):
        return f"{self.number:4} {self.at:7.1f} s  {self.pc:8} {self.kind:22} {self.hold:4.1f} s {self.detail}".rstrip()


# kind -> (weight, shortest and longest hold). On an agent's PC, but for the last ones.
KINDS = {
    "kill agent": (4, 0.2, 4.0),
    "freeze agent": (3, 1.0, 8.0),
    "freeze agent for long": (1, 12.0, 20.0),
    "link down": (3, 1.0, 6.0),
    "drop what leaves": (2, 1.0, 6.0),
    "drop what arrives": (2, 1.0, 6.0),
    "random loss": (3, 2.0, 6.0),
    "reset connections": (2, 0.5, 2.0),
    "fill the state folder": (2, 2.0, 6.0),
    "out of memory": (1, 0.2, 2.0),
    "kill controller": (2, 0.5, 6.0),
    "freeze controller": (1, 1.0, 4.0),
    "restart target": (2, 0.2, 2.0),
}
ON_CONTROL = {"kill controller", "freeze controller"}
ON_SERVER = {"restart target"}


def draw_schedule(seed, count):
    """`count` faults, each on a PC that has been left alone for a while: first one of each kind, then as the weights
    have it. The same for the same seed."""
    rng = random.Random(seed)
    names, weights = list(KINDS), [weight for weight, _, _ in KINDS.values()]
    kinds = (rng.sample(names, len(names)) + rng.choices(names, weights, k=count))[:count]
    free_at = {}
    faults = []
    at = 3.0
    for number, kind in enumerate(kinds, 1):
        hold = round(rng.uniform(*KINDS[kind][1:]), 1)
        mine = (["control"] if kind in ON_CONTROL else ["server"] if kind in ON_SERVER
                else [f"pc-{i:02d}" for i in range(1, PCS + 1)])
        at = max(at, min(free_at.get(pc, 0) for pc in mine))
        pc = rng.choice([pc for pc in mine if free_at.get(pc, 0) <= at])
        detail = f"{rng.randint(1, 30)} %" if kind == "random loss" else ""
        faults.append(Fault(number, at, kind, pc, hold, detail))
        free_at[pc] = at + hold + SETTLE
        at += EVERY
    return faults


class Breaker:
    """Carries faults out on a Lan."""

    def __init__(self, net, folders):
        self.net, self.folders = net, folders
        self.pcs = {pc.name: pc for pc in [*net.pcs, net.control, net.server]}

    def inject(self, fault):
        pc = self.pcs[fault.pc]
        if fault.kind in ("kill agent", "kill controller", "restart target"):
            pc.kill()
        elif fault.kind.startswith("freeze"):
            pc.freeze()
        elif fault.kind == "link down":
            pc.unplug()
        elif fault.kind == "drop what leaves":
            pc.filter(("output", "oif eth0 drop"))
        elif fault.kind == "drop what arrives":
            pc.filter(("input", "iif eth0 drop"))
        elif fault.kind == "random loss":
            rule = f"numgen random mod 100 < {fault.detail.split()[0]} drop"
            pc.filter(("input", f"iif eth0 {rule}"), ("output", f"oif eth0 {rule}"))
        elif fault.kind == "reset connections":
            pc.filter(("output", "oif eth0 meta l4proto tcp reject with tcp reset"))
        elif fault.kind == "fill the state folder":
            self._fill(self.folders[fault.pc])
        elif fault.kind == "out of memory":
            self._out_of_memory(pc)

    def heal(self, fault):
        pc = self.pcs[fault.pc]
        if fault.kind in ("kill agent", "out of memory", "kill controller", "restart target"):
            pc.start(wait=False)
        elif fault.kind.startswith("freeze"):
            pc.thaw()
        elif fault.kind == "link down":
            pc.plug_in()
        elif fault.kind == "fill the state folder":
            os.unlink(os.path.join(self.folders[fault.pc], "ballast"))
        else:
            pc.open_up()

    def _fill(self, folder):
        with open(os.path.join(folder, "ballast"), "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"\0" * 4096)

    def _out_of_memory(self, pc):
        """A limit below what it has: the kernel's killer ends it. Where cgroups cannot be made, a plain kill."""
        group = os.path.join(CGROUPS, self.net.prefix)
        try:
            os.makedirs(group, exist_ok=True)
            for name, value in (("memory.limit_in_bytes", 1 << 20), ("memory.move_charge_at_immigrate", 3),
                                ("cgroup.procs", pc.process.pid)):
                with contextlib.suppress(OSError) if name != "cgroup.procs" else contextlib.nullcontext():
                    with open(os.path.join(group, name), "w", encoding="ascii") as f:
                        f.write(str(value))
            pc.process.wait(3)
        except (OSError, AssertionError):
            pc.kill()


class FaultsTest(lan.LanTest):
    def setUp(self):
        self.state_folders = {}

    def small_disks(self):
        """A file system of its own for each agent's state, so that it can be filled."""
        for i in range(1, PCS + 1):
            name = f"pc-{i:02d}"
            folder = self.path(f"state-{name}")
            os.mkdir(folder)
            lan.run("mount", "-t", "tmpfs", "-o", f"size={STATE_BYTES}", "tmpfs", folder)
            self.addCleanup(subprocess.run, ["umount", "-l", folder], check=False)
            self.state_folders[name] = os.path.join(folder)

    def test_nothing_is_lost_whatever_breaks(self):
        faults = draw_schedule(SEED, FAULTS)
        print(f"\nseed {SEED}, {len(faults)} faults; again: SPATE_FAULTS={len(faults)} SPATE_FAULT_SEED={SEED}",
              *faults, sep="\n", file=sys.stderr, flush=True)
        self.small_disks()
        length = int(faults[-1].at + 60)
        with lan.Lan(self, pcs=PCS, target=["--threads", "2"]) as net:
            self.addCleanup(self.remove_cgroup, net.prefix)
            net.start_all()
            plan = cluster.plan(f"grpcs://{lan.SERVER}:7443", probe=f"{lan.SERVER}:7001", name="faults",
                                connections=5 * PCS, agents=PCS, phases=[{"name": "flood", "for": f"{length}s"}])
            plan["interval"] = "1s"
            plan["load"] |= {"calls_per_loop": 1, "pause": "50ms"}
            plan["call"] = {**cluster.NESTED_CALL, "timeout": "2s"}
            started = net.client("run", self.write_plan(plan), "--detach", label="run")
            self.assertEqual(started.wait(60), 0, started.tail(40))
            run = re.search(r"faults-\S+", started.stdout).group(0).rstrip(".:,")
            support.eventually(lambda: self.ages(net, run).keys() >= set(self.state_folders), "load on every agent", 30)
            self.carry_out(net, faults)
            healed = time.monotonic()
            took = self.wait_for_load(net, run, healed)
            print(f"load was back on every agent {took:.1f} s after the last healing", file=sys.stderr)
            stopped = net.client("stop", run, label="stop")
            stopped.wait(60)
            self.check(net, run, faults)

    def carry_out(self, net, faults):
        breaker = Breaker(net, self.state_folders)
        begin = time.monotonic()
        todo = []
        for fault in faults:
            heapq.heappush(todo, (fault.at, fault.number, "inject", fault))
            heapq.heappush(todo, (fault.at + fault.hold, fault.number, "heal", fault))
        while todo:
            at, _, what, fault = heapq.heappop(todo)
            time.sleep(max(0.0, begin + at - time.monotonic()))
            getattr(breaker, what)(fault)

    def query(self, net, text, *values):
        with contextlib.closing(sqlite3.connect(f"file:{net.store}?mode=ro", uri=True, timeout=10)) as db:
            return db.execute(text, values).fetchall()

    def ages(self, net, run):
        """agent -> how many seconds ago its newest stored interval with an answer ended."""
        rows = self.query(net, "SELECT r.agent, max(r.start_ns + r.length_ns), max(s.started_wall_ms) FROM all_records r"
                               " JOIN runs s ON s.id = r.run WHERE r.run = ? AND r.ok > 0 GROUP BY r.agent", run)
        now = time.time()
        return {agent: now - (wall_ms / 1e3 + end / 1e9) for agent, end, wall_ms in rows}

    def wait_for_load(self, net, run, healed):
        """Seconds from the healing until each agent has answers in an interval that began after it."""
        def all_back():
            ages = self.ages(net, run)
            since = time.monotonic() - healed
            return len(ages) == PCS and all(age < since - 1.0 for age in ages.values())
        try:
            # An interval is 1 s, and is stored a moment after its end.
            support.eventually(all_back, "load on every agent again", BACK_WITHIN + 2.0, every=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\nseconds since the newest answers: {self.ages(net, run)}") from None
        return time.monotonic() - healed

    def check(self, net, run, faults):
        support.eventually(lambda: self.query(net, "SELECT state FROM runs WHERE id = ?", run) == [("finished",)],
                           "the run's end", 90)
        # What came late is stored a little after the end.
        verify = net.client("verify", run, label="verify")
        verify.wait(60)
        report = net.client("report", run, "--format", "json", "--out", self.path("report.json"), label="report")
        self.assertEqual(report.wait(60), 0, report.tail())
        with open(self.path("report.json"), encoding="utf-8") as f:
            content = json.load(f)
        summary = content["summary"]
        print(verify.stdout, *summary["reasons"], sep="\n", file=sys.stderr)
        self.assertEqual(self.doubles(net, run), [], "intervals that are stored twice")
        self.assertEqual(content["gaps"], [], verify.stdout)
        self.assertIn(summary["balance"], ("BALANCED", "EXPLAINED"), verify.stdout)
        kinds = {fault.kind for fault in faults}
        print(f"{len(faults)} faults of {len(kinds)} kinds: {summary['records']}, {summary['requests']}, "
              f"{summary['balance']}", file=sys.stderr)

    def doubles(self, net, run):
        """Seqs that more than one stored record covers."""
        rows = self.query(net, "SELECT agent, incarnation, CASE first_seq WHEN 0 THEN seq ELSE first_seq END, seq"
                               " FROM all_records WHERE run = ? ORDER BY 1, 2, 4", run)
        return [(now, before) for before, now in zip(rows, rows[1:])
                if before[:2] == now[:2] and now[2] <= before[3]]

    @staticmethod
    def remove_cgroup(prefix):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(CGROUPS, prefix))


if __name__ == "__main__":
    lan.skip_without_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    unittest.main(verbosity=2)
