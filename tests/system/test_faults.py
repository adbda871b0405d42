#!/usr/bin/python3
"""Real faults on a virtual LAN: one controller, one target and eight agents in namespaces of their own, one run, and
faults one after the other, several at once on different PCs. Whenever a PC has healed, the load must be back on it
within 10 s; after the end nothing may be missing or stored twice, everybody must be on the same epoch, and the balance
may not be UNBALANCED.

    sudo tests/system/test_faults.py                          # 60 faults
    sudo SPATE_FAULTS=600 tests/system/test_faults.py         # six hundred, in about 20 minutes
    sudo SPATE_FAULT_SEED=4711 tests/system/test_faults.py    # the schedule of that seed again
    sudo SPATE_FAULT_COUNTS=tests/system/faults.json …        # add what has passed to that file

The schedule is drawn from the seed before anything starts, and printed with it.
"""

import collections
import contextlib
import heapq
import json
import os
import random
import re
import shutil
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
COUNTS = os.path.abspath(os.environ["SPATE_FAULT_COUNTS"]) if "SPATE_FAULT_COUNTS" in os.environ else None
PCS = 8
NAMES = [f"pc-{i:02d}" for i in range(1, PCS + 1)]
EVERY = 1.8          # seconds from one fault to the next
BACK_WITHIN = 10.0   # seconds from a healing to answers in an interval that began after it
SETTLE = 4.0         # of a client PC between two faults, and half of it of the others
AWAY_WAIT = 6.0      # how long the controller waits with a change for an agent that is away, and 1 s
LONG_TEST = 200      # faults; in shorter tests nothing stands still for minutes
STATE_BYTES = 16 << 20
STORE_BYTES = 96 << 20
CGROUPS = "/sys/fs/cgroup/memory"


class Fault:
    """What is done to a PC, and undone after `hold` seconds."""

    def __init__(self, number, at, kind, pc, hold, detail):
        self.number, self.at, self.kind, self.pc, self.hold, self.detail = number, at, kind, pc, hold, detail
        self.begun = self.healed = 0.0  # wall time
        self.verbs = []                 # of `spate`, started by it
        self.program = None             # started by it

    def __str__(self):
        return f"{self.number:4} {self.at:7.1f} s  {self.pc:8} {self.kind:24} {self.hold:5.1f} s {self.detail}".rstrip()


# kind -> (weight, shortest and longest hold)
ON_PCS = {
    "kill agent": (4, 0.2, 4.0),
    "freeze agent": (3, 1.0, 8.0),
    "freeze agent for long": (1, 12.0, 20.0),
    "link down": (3, 1.0, 6.0),
    "drop what leaves": (2, 1.0, 6.0),
    "drop what arrives": (2, 1.0, 6.0),
    "random loss": (3, 2.0, 6.0),
    "reset connections": (2, 0.5, 2.0),
    "fill the state folder": (2, 2.0, 6.0),
    "out of memory": (2, 0.2, 2.0),
    "step its clock": (2, 2.0, 6.0),
    # 5 s is what a change waits for an agent that is away: with a longer hold it reaches the others only.
    "cut off, then set": (2, 2.0, 10.0),
    "cut off, then pause": (2, 2.0, 10.0),
}
ON_CONTROL = {
    "kill controller": (2, 0.5, 6.0),
    "freeze controller": (1, 1.0, 4.0),
    "step controller's clock": (1, 2.0, 6.0),
    "second controller": (1, 1.0, 3.0),
    "superseded controller": (1, 6.0, 9.0),
    "fill the store's folder": (1, 2.0, 6.0),
}
ON_SERVER = {"restart target": (2, 0.2, 2.0)}
KINDS = ON_PCS | ON_CONTROL | ON_SERVER

# What the run's events must say of it. A step of an agent's clock is seen from one heartbeat to the next, by one
# controller.
NAMED = {
    "kill agent": "agent restarted agent={pc} ",
    "out of memory": "agent restarted agent={pc} ",
    "step its clock": "clock stepped agent={pc} by=",
    "step controller's clock": "clock stepped controller by=",
    "restart target": "target restarted ",
    "kill controller": "controller restarted ",
    "superseded controller": "controller restarted ",
}


def detail_of(kind, rng):
    if kind == "random loss":
        return f"{rng.randint(1, 30)} %"
    if kind.startswith("step "):
        return rng.choice(["+3600", "-3600"])
    if kind == "cut off, then set":
        return rng.choice([f"load.connections={rng.randint(PCS * 4, PCS * 6)}", f"load.pause={rng.randint(40, 60)}ms",
                           "call.compress=true", "call.compress=false"])
    return ""


def places(kind):
    return ["control"] if kind in ON_CONTROL else ["server"] if kind in ON_SERVER else NAMES


def draw_schedule(seed, count):
    """`count` faults, each on a PC that has been left alone for a while: first one of each kind, then as the weights
    have it; a kind that has no such PC waits for one, and lets others go first. The same for the same seed."""
    rng = random.Random(seed)
    names, weights = list(KINDS), [weight for weight, _, _ in KINDS.values()]
    waiting = (rng.sample(names, len(names)) + rng.choices(names, weights, k=count))[:count]
    free_at = dict.fromkeys(["control", "server", *NAMES], 0.0)
    faults = []
    at = 3.0
    while waiting:
        kind = next((k for k in waiting if any(free_at[pc] <= at for pc in places(k))), None)
        if kind is None:
            at += 0.1
            continue
        waiting.remove(kind)
        hold = round(rng.uniform(*KINDS[kind][1:]), 1)
        if kind == "freeze agent for long" and count >= LONG_TEST:
            hold = round(hold * 6, 1)  # two minutes
        pc = rng.choice([pc for pc in places(kind) if free_at[pc] <= at])
        faults.append(Fault(len(faults) + 1, round(at, 1), kind, pc, hold, detail_of(kind, rng)))
        free_at[pc] = at + hold + (SETTLE if pc in NAMES else SETTLE / 2)
        at += EVERY
    return faults


class Breaker:
    """Carries faults out on a Lan."""

    def __init__(self, net, run, folders, old_store):
        self.net, self.run, self.folders, self.old_store = net, run, folders, old_store
        self.pcs = {pc.name: pc for pc in [*net.pcs, net.control, net.server]}
        self.plain_kills = 0  # instead of the kernel's
        self.blind = 0        # superseded controllers that no agent met in time

    def inject(self, fault):
        pc = self.pcs[fault.pc]
        fault.begun = time.time()
        if fault.kind in ("kill agent", "kill controller", "restart target"):
            pc.kill()
        elif fault.kind.startswith("freeze"):
            pc.freeze()
        elif fault.kind == "link down":
            pc.unplug()
        elif fault.kind.startswith("cut off"):
            pc.unplug()
            self._order(fault)
        elif fault.kind == "drop what leaves":
            pc.filter(("output", "oif eth0 drop"))
        elif fault.kind == "drop what arrives":
            pc.filter(("input", "iif eth0 drop"))
        elif fault.kind == "random loss":
            rule = f"numgen random mod 100 < {fault.detail.split()[0]} drop"
            pc.filter(("input", f"iif eth0 {rule}"), ("output", f"oif eth0 {rule}"))
        elif fault.kind == "reset connections":
            pc.filter(("output", "oif eth0 meta l4proto tcp reject with tcp reset"))
        elif fault.kind.startswith("fill the "):
            self._fill(self.folders[fault.pc])
        elif fault.kind == "out of memory":
            self._out_of_memory(pc)
        elif fault.kind.startswith("step "):
            pc.set_clock(fault.detail)
        elif fault.kind == "second controller":
            self._second_controller(fault)
        elif fault.kind == "superseded controller":
            self._superseded_controller(fault)

    def heal(self, fault):
        pc = self.pcs[fault.pc]
        if fault.kind in ("kill agent", "out of memory", "kill controller", "restart target"):
            pc.start(wait=False)
        elif fault.kind.startswith("freeze"):
            pc.thaw()
        elif fault.kind == "link down" or fault.kind.startswith("cut off"):
            pc.plug_in()
        elif fault.kind.startswith("fill the "):
            os.unlink(os.path.join(self.folders[fault.pc], "ballast"))
        elif fault.kind.startswith("step "):
            pc.set_clock("+0")
        elif fault.kind == "second controller":
            self._expect(fault.program, 1, "in use by another spate-controller")
        elif fault.kind == "superseded controller":
            if fault.program.is_running():
                self.blind += 1
                fault.program.kill()
            else:
                self._expect(fault.program, 4, "superseded")
            pc.start(wait=False)
        else:
            pc.open_up()
        fault.healed = time.time()

    def resume(self, fault):
        """After "cut off, then pause": whether its agent works again by the word of the controller."""
        last = fault.verbs[-1]
        if last.is_running():
            return False
        if last.command == "resume" and last.wait() == 0:
            fault.healed = time.time() + AWAY_WAIT  # while somebody is away, its instant is so much later
            return True
        self._verb(fault, "resume", "--agent", fault.pc)
        return False

    def _order(self, fault):
        if fault.kind == "cut off, then set":
            self._verb(fault, "set", fault.detail)
        else:
            self._verb(fault, "pause", "--agent", fault.pc)

    def _verb(self, fault, command, *arguments):
        label = f"{command}-{fault.number}-{len(fault.verbs) + 1}"
        fault.verbs.append(self.net.client(command, self.run, *arguments, label=label))
        fault.verbs[-1].command = command

    def _fill(self, folder):
        with open(os.path.join(folder, "ballast"), "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"\0" * 4096)

    def _out_of_memory(self, pc):
        """In a group with a limit, somebody else takes all there is: the kernel's killer chooses the largest of the
        group, which is the agent. Where there is no such group, a plain kill."""
        group = os.path.join(CGROUPS, self.net.prefix)
        try:
            os.makedirs(group, exist_ok=True)
            for path, value in ((os.path.join(group, "memory.limit_in_bytes"), 4 << 20),
                                (f"/proc/{pc.process.pid}/oom_score_adj", 1000),
                                (os.path.join(group, "cgroup.procs"), pc.process.pid)):
                with open(path, "w", encoding="ascii") as f:
                    f.write(str(value))
            # Not by start_beside(): a network namespace hides the groups.
            self.net.test.start_command("glutton", ["sh", "-c", f"echo $$ > {group}/cgroup.procs; exec tail /dev/zero"])
            ended = pc.process.wait(3)
            if ended != -signal.SIGKILL:
                raise AssertionError(f"{pc.name} ended with {ended}\n{pc.process.tail()}")
        except (OSError, AssertionError) as error:
            print(f"no out of memory on {pc.name}, killed instead: {error}", file=sys.stderr)
            self.plain_kills += 1
            pc.kill()

    def _second_controller(self, fault):
        """On the same store, at another port."""
        command = [f"{lan.CONTROL}:7071" if part == f"{lan.CONTROL}:7070" else part for part in self.net.control.command]
        fault.program = self.net.control.start_beside(f"second-{fault.number}", command)

    def _superseded_controller(self, fault):
        """At the same address, on a copy of the store from before the run."""
        self.net.control.kill()
        copy = self.net.test.path(f"copy-{fault.number}.sqlite")
        shutil.copy(self.old_store, copy)
        command = [copy if part == self.net.store else part for part in self.net.control.command]
        fault.program = self.net.control.start_beside(f"superseded-{fault.number}", command)

    @staticmethod
    def _expect(program, code, text):
        ended = program.wait()
        if ended != code or text not in program.stderr:
            raise AssertionError(f"{program.name} ended with {ended}, not {code} and {text!r}\n{program.tail()}")


class FaultsTest(lan.LanTest):
    def setUp(self):
        if not os.path.exists(lan.FAKETIME):
            self.fail(f"{lan.FAKETIME} is not there: apt-get install libfaketime")
        self.folders = {}

    def small_disks(self):
        """A file system of its own for each agent's state and for the store, so that it can be filled."""
        for name in [*NAMES, "control"]:
            folder = self.path(f"state-{name}")
            os.mkdir(folder)
            size = STORE_BYTES if name == "control" else STATE_BYTES
            lan.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
            self.addCleanup(subprocess.run, ["umount", "-l", folder], check=False)
            self.folders[name] = folder
        self.addCleanup(shutil.copytree, self.folders["control"], self.path("kept"), dirs_exist_ok=True)

    def test_nothing_is_lost_whatever_breaks(self):
        faults = draw_schedule(SEED, FAULTS)
        print(f"\nseed {SEED}, {len(faults)} faults; again: SPATE_FAULTS={len(faults)} SPATE_FAULT_SEED={SEED}",
              *faults, sep="\n", file=sys.stderr, flush=True)
        self.small_disks()
        length = int(max(f.at + f.hold for f in faults) + 90)
        with lan.Lan(self, pcs=PCS, target=["--threads", "2"], store=os.path.join(self.folders["control"], "store"),
                     fakes_clocks=True) as net:
            self.addCleanup(self.remove_cgroup, net.prefix)
            old_store = self.raise_term(net)
            net.start_all()
            plan = cluster.plan(f"grpcs://{lan.SERVER}:7443", probe=f"{lan.SERVER}:7001", name="faults",
                                connections=5 * PCS, agents=PCS, phases=[{"name": "flood", "for": f"{length}s"}])
            plan["interval"] = "1s"
            plan["load"] |= {"calls_per_loop": 1, "pause": "50ms"}
            plan["call"] = {**cluster.NESTED_CALL, "timeout": "2s"}
            started = net.client("run", self.write_plan(plan), "--detach", label="run")
            self.assertEqual(started.wait(60), 0, started.tail(40))
            run = re.search(r"faults-\S+", started.stdout).group(0).rstrip(".:,")
            support.eventually(lambda: self.loaded_since(net, run, 0) == set(NAMES), "load on every agent", 30)
            self.began = self.query(net, "SELECT started_wall_ms FROM runs WHERE id = ?", run)[0][0] / 1e3
            breaker = Breaker(net, run, self.folders, old_store)
            self.carry_out(breaker, faults)
            self.wait_for_load(net, run, max(f.healed for f in faults))
            self.everybody_on_one_epoch(net, run, faults)
            net.client("stop", run, label="stop").wait(60)
            self.check(net, run, faults)
            self.check_recovery(net, run, faults)
            self.count(faults, breaker)

    def raise_term(self, net):
        """A controller that is started on the copy returned has a lower term than the one of the run."""
        for start in range(2):
            net.control.start()
            self.assertEqual(net.control.process.stop(), 0)
            if start == 0:
                shutil.copy(net.store, self.path("old-store"))
        return self.path("old-store")

    def carry_out(self, breaker, faults):
        begin = time.monotonic()
        todo = []
        for fault in faults:
            heapq.heappush(todo, (fault.at, fault.number, "inject", fault))
            heapq.heappush(todo, (fault.at + fault.hold, fault.number, "heal", fault))
        while todo:
            at, number, what, fault = heapq.heappop(todo)
            time.sleep(max(0.0, begin + at - time.monotonic()))
            if what != "resume":
                getattr(breaker, what)(fault)
            if what != "inject" and fault.kind == "cut off, then pause" and not breaker.resume(fault):
                heapq.heappush(todo, (time.monotonic() - begin + 0.5, number, "resume", fault))

    def query(self, net, text, *values):
        with contextlib.closing(sqlite3.connect(f"file:{net.store}?mode=ro", uri=True, timeout=10)) as db:
            return db.execute(text, values).fetchall()

    def loaded_since(self, net, run, elapsed):
        """The agents that have answers in a stored interval that began later than so many seconds into the run."""
        return {name for name, in self.query(net, "SELECT DISTINCT agent FROM all_records"
                                                  " WHERE run = ? AND ok > 0 AND start_ns >= ?", run, int(elapsed * 1e9))}

    def wait_for_load(self, net, run, healed):
        elapsed = healed - self.began
        missing = set()

        def all_back():
            missing.clear()
            missing.update(set(NAMES) - self.loaded_since(net, run, elapsed))
            return not missing
        try:
            # An interval is 1 s, and is stored a moment after its end.
            support.eventually(all_back, "load on every agent again", max(0.0, healed - time.time()) + BACK_WITHIN + 2.0,
                               every=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\nno answers since {elapsed:.1f} s: {sorted(missing)}") from None

    def everybody_on_one_epoch(self, net, run, faults):
        """Whatever was ordered while somebody was away: made on all agents, or refused with a reason."""
        outcomes = collections.Counter()
        for verb in (verb for fault in faults for verb in fault.verbs):
            code = verb.wait(60)
            outcomes[f"{verb.command}: " + ("made" if code == 0 else f"exit status {code}")] += 1
            self.assertTrue(code == 0 or "spate: " in verb.stderr, f"{verb.name} ended with {code}\n{verb.tail()}")
        ordered = self.query(net, "SELECT max(epoch) FROM changes WHERE run = ?", run)[0][0]

        def is_one():
            verb = net.client("status", run, "-o", "json", label="status")
            self.live = json.loads(verb.stdout)["live"] if verb.wait(30) == 0 else {"agents": [], "epoch": 0}
            epochs = {self.live["epoch"], ordered or 1, *(a["epoch"] for a in self.live["agents"])}
            return len(self.live["agents"]) == PCS and len(epochs) == 1
        try:
            support.eventually(is_one, f"all agents on epoch {ordered or 1}", AWAY_WAIT + BACK_WITHIN, every=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.live, indent=1)}") from None
        self.assertEqual(self.live["spread"], "")
        print("orders while an agent was cut off:", dict(sorted(outcomes.items())), file=sys.stderr)

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
        self.check_named(faults, [event["text"] for event in content["events"]])
        print(f"{len(faults)} faults: {summary['records']}, {summary['requests']}, {summary['balance']}", file=sys.stderr)

    def check_named(self, faults, events):
        """The user was told what had happened."""
        away = [(f.begun - 2, f.healed + 2) for f in faults if f.kind in ON_CONTROL]
        for fault in faults:
            if fault.kind == "step its clock" and any(a < fault.healed and fault.begun < b for a, b in away):
                continue
            text = NAMED.get(fault.kind, "").format(pc=fault.pc)
            self.assertTrue(any(text in event for event in events), f"no event {text!r} for: {fault}")

    def doubles(self, net, run):
        """Seqs that more than one stored record covers."""
        rows = self.query(net, "SELECT agent, incarnation, CASE first_seq WHEN 0 THEN seq ELSE first_seq END, seq"
                               " FROM all_records WHERE run = ? ORDER BY 1, 2, 4", run)
        return [(now, before) for before, now in zip(rows, rows[1:])
                if before[:2] == now[:2] and now[2] <= before[3]]

    def check_recovery(self, net, run, faults):
        """From every moment from which nothing was broken on a PC, the target and the controller: how long until the
        end of its first interval with answers that began after that."""
        took = []
        cut_short = 0
        for pc in NAMES:
            mine = [f for f in faults if f.pc in (pc, "server", "control")]
            answers = self.query(net, "SELECT start_ns / 1e9, (start_ns + length_ns) / 1e9 FROM all_records"
                                      " WHERE run = ? AND agent = ? AND ok > 0 ORDER BY 1", run, pc)
            for fault in mine:
                healed = fault.healed - self.began
                if any(f.begun <= fault.healed < f.healed for f in mine if f is not fault):
                    continue
                next_at = min((f.begun - self.began for f in mine if f.begun > fault.healed), default=float("inf"))
                back = next((end for start, end in answers if start >= healed), float("inf"))
                if back > next_at and next_at - healed < BACK_WITHIN:
                    cut_short += 1
                else:
                    took.append((back - healed, pc, fault))
        took.sort(key=lambda t: t[:2], reverse=True)
        print(f"load was back after {len(took)} healings, {cut_short} more were cut short by the next fault; the longest:",
              *(f"  {seconds:5.1f} s  {pc} after {fault}" for seconds, pc, fault in took[:5]), sep="\n", file=sys.stderr)
        self.assertLessEqual(took[0][0], BACK_WITHIN)

    def count(self, faults, breaker):
        kinds = collections.Counter(fault.kind for fault in faults)
        if breaker.plain_kills > 0:  # not the kernel's
            kinds["kill agent"] += breaker.plain_kills
            kinds["out of memory"] -= breaker.plain_kills
        if breaker.blind > 0:
            print(f"{breaker.blind} superseded controllers met no agent in time", file=sys.stderr)
        print(f"{len(faults)} faults of {len(+kinds)} kinds:",
              *(f"  {number:4} {kind}" for kind, number in sorted(kinds.items())), sep="\n", file=sys.stderr)
        if COUNTS:
            add_counts(COUNTS, kinds)

    @staticmethod
    def remove_cgroup(prefix):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(CGROUPS, prefix))


def add_counts(path, kinds):
    """What has been run and has passed, in all; and on which commit last."""
    known = {"faults": 0, "kinds": {}}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            known = json.load(f)
    known["faults"] += kinds.total()
    known["kinds"] = dict(sorted((collections.Counter(known["kinds"]) + kinds).items()))
    known["commit"] = subprocess.run(["git", "-C", support.REPOSITORY, "rev-parse", "--short=12", "HEAD"], check=True,
                                     capture_output=True, text=True).stdout.strip()
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    lan.skip_without_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    unittest.main(verbosity=2)
