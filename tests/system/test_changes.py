"""Parameters of a live run, changed by `spate set`, `pause` and `resume`: real processes, real counts."""

import contextlib
import json
import os
import re
import sqlite3
import time
import unittest

import cluster
import support

# Ended by `stop`, long before.
LONG = [{"name": "soak", "for": "5m"}]


class ChangesTest(cluster.ClusterTest):
    identity = ()  # of the client: its certificate, if it has one

    def begin(self, *, agents=2, connections=40, options=((), (), (), ()), listen="127.0.0.1:0",
              redistribute=False):
        self.target = self.start_target()
        self.controller = self.start_controller(listen=listen)
        self.agents = [self.start_agent(self.controller, f"pc-{i + 1:02d}", *options[i]) for i in range(agents)]
        content = cluster.plan(self.target.url, probe=self.target.stats_address, agents=agents,
                               connections=connections, phases=LONG)
        if redistribute:
            content["agents"]["redistribute"] = "after_fence"
            content["on_controller_loss"] = "drain"
        self.follow(content)

    def follow(self, content):
        self.run_process = self.start_run(self.controller, self.write_plan(content), *self.identity)
        self.told(r"\n\s*\d+:\d\d/\d+:\d\d\s+soak ")

    def told(self, pattern):
        """Until those who follow the run have read it."""
        support.eventually(lambda: re.search(pattern, self.run_process.stderr), pattern, timeout=30)

    def verb(self, *arguments, expected_exit=0):
        self.verbs = getattr(self, "verbs", 0) + 1
        return self.client(*arguments, "--controller", self.controller.address, *self.identity,
                           expected_exit=expected_exit, label=f"verb-{self.verbs}")

    def set(self, *arguments, **options):
        return self.verb("set", "last", *arguments, **options)

    def status(self):
        return json.loads(self.verb("status", "last", "-o", "json").stdout)

    def everybody_on(self, epoch):
        """Until every agent has said that it works by this epoch."""
        def is_there():
            self.seen = self.status()
            live = self.seen["live"]
            return live["epoch"] == epoch and all(a["epoch"] == epoch for a in live["agents"])
        support.eventually(is_there, f"epoch {epoch} on every agent", timeout=20, every=0.2)
        return self.seen["live"]

    def open_connections(self, count):
        """Until the target has so many: told by the live lines, from the agents' records."""
        pattern = re.compile(rf"\s{count:,}/{count:,}\s")
        before = len(self.run_process.stderr)
        support.eventually(lambda: pattern.search(self.run_process.stderr[before:]),
                           f"{count} of {count} connections", timeout=20)

    def end(self):
        summary = self.stop()
        self.assert_adds_up(summary)
        self.assertEqual(summary["balance"], "BALANCED", summary)
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])
        self.assertEqual(summary["requests"]["ok"], summary["requests"]["sent"], summary)
        self.assertEqual(summary["records"]["gaps"], 0)
        # A change is no reason against a run; that this machine was too slow for it may be one.
        self.assertFalse([r for r in summary["reasons"] if "established" in r], summary)
        verify = self.start("spate", "verify", "last", "--controller", self.controller.address, *self.identity,
                            label="verify")
        self.assertIn(verify.wait(60), (0, 3), verify.stdout)
        self.assertRegex(verify.stdout, r"\S BALANCED\n")
        return summary

    def stop(self):
        self.verb("stop", "last")
        return self.finish(self.run_process, expected_exit=105)

    def test_connections_up_and_down_on_all_and_on_one(self):
        self.begin()
        said = self.set("load.connections=100", "--reason", "more of it").stdout
        self.assertRegex(said, r"^epoch 2 from 1 at \S+ \(.* into the run\): load.connections=100")
        self.assertRegex(said, r"load.connections\s+40\s+100")
        self.assertIn("prepared by 2 agents: pc-01, pc-02", said)
        self.assertIn("a guard band of 10s follows", said)
        self.everybody_on(2)
        self.open_connections(100)
        self.told(r"epoch 2 from 1: load.connections=100 by operator: more of it")
        self.set("load.connections=10")
        self.everybody_on(3)
        self.open_connections(10)
        self.set("load.connections=25", "--agent", "pc-02")
        live = self.everybody_on(4)
        self.open_connections(30)
        self.assertEqual([a["connections"] for a in live["agents"]], [5, 25])
        self.assertEqual(live["leased"], 30)
        summary = self.end()
        # Only what is wanted more or less is opened or closed.
        self.assertEqual(summary["connections"]["opened"], 40 + 60 + 20)
        self.assertEqual(summary["connections"]["closed"], 90)
        changes = self.status()["changes"]
        self.assertEqual([c["epoch"] for c in changes], [2, 3, 4])
        self.assertEqual(changes[2]["agents"], ["pc-02"])
        self.assertEqual(changes[0]["reason"], "more of it")
        self.assertEqual([c["guard_ms"] for c in changes], [10_000] * 3)

    def test_compression_and_loops(self):
        self.begin()
        self.set("call.compress=true", "load.calls_per_loop=5", "load.pause=50ms")
        self.everybody_on(2)
        self.set("call.compress=false", "load.calls_per_loop=0", "load.pause=0s")
        self.everybody_on(3)
        self.end()

    def test_pause_keeps_the_connections_and_sends_nothing(self):
        self.begin()
        self.verb("pause", "last", "--reason", "the switch")
        self.everybody_on(2)
        self.told(r"epoch 2 from 1: pause by operator: the switch")
        support.eventually(lambda: re.search(r"\s40/40\s+0\s", self.run_process.stderr),
                           "an interval with 40 connections and no request", timeout=20)
        self.verb("resume", "last")
        self.everybody_on(3)
        summary = self.end()
        self.assertEqual(summary["connections"]["opened"], 40)
        self.assertEqual(summary["connections"]["closed"], 0)

    def test_what_is_refused_changes_nothing(self):
        self.begin(options=((), ("--max-connections", "50")))
        for arguments, code, texts in (
                (("load.connections=200",), 2, ("agent pc-02", "50", "nothing was changed")),
                (("load.conections=20",), 2, ("load.connections",)),
                (("interval=1s",), 2, ("interval",)),
                (("load.connections=20", "--agent", "pc-03"), 2, ("pc-03", "pc-01, pc-02")),
                (("load.connections=20", "--if-epoch", "7"), 4, ("epoch 1", "7")),
                (("load.connections=20", "--at", "2020-01-01T00:00:00Z"), 2, ("passed",)),
                (("load.connections=20", "--at", "+24h"), 2, ("over by then",)),
                (("load.connections=20", "--at", "soon"), 2, ("2026-12-01T06:00:00Z",)),
                (("load.connections=20", "--guard", "25h"), 2, ("--guard 25h", "1d")),
                (("load.connections=20", "--canary", "100%"), 2, ("canary",)),
                (("load.connections=20", "--canary", "some"), 2, ("10%",))):
            with self.subTest(arguments):
                said = self.set(*arguments, expected_exit=code).stderr
                for text in texts:
                    self.assertIn(text, said)
        self.verb("set", "no-such-run", "load.connections=1", expected_exit=4)
        self.verb("set", "last", expected_exit=2)
        seen = self.status()
        self.assertEqual(seen["live"]["epoch"], 1)
        self.assertEqual(seen["changes"], [])
        summary = self.end()
        self.assertEqual(summary["connections"]["opened"], 40)
        self.verb("set", summary["run"], "load.connections=1", expected_exit=4)

    def test_later_and_only_if_nobody_was_faster(self):
        self.begin()
        said = self.set("load.connections=60", "--at", "+3s", "--if-epoch", "1").stdout
        self.assertIn("epoch 2 from 1", said)
        self.assertEqual(self.status()["live"]["epoch"], 1)
        self.assertFalse(self.status()["changes"][0]["due"])
        self.everybody_on(2)
        self.open_connections(60)
        self.assertIn("epoch 2", self.set("load.connections=4", "--if-epoch", "1", expected_exit=4).stderr)
        self.end()

    def test_a_canary_is_compared_with_the_others(self):
        self.begin(agents=3, connections=30)
        self.set("load.calls_per_loop=1", "load.pause=100ms", "--canary", "30%")
        self.everybody_on(2)

        def is_slower():
            groups = {g["name"]: g for g in self.status().get("canary", [])}
            return groups and groups["canary"]["requests"] > 0 and groups["others"]["requests"] > 0 \
                and groups["canary"]["rate_per_connection"] < groups["others"]["rate_per_connection"]
        support.eventually(is_slower, "a canary that is slower than the others", timeout=30, every=0.5)
        self.assertIn("canary", self.verb("status", "last").stdout)
        self.set("load.calls_per_loop=1", "load.pause=100ms")
        self.everybody_on(3)
        self.assertNotIn("canary", self.status())
        self.end()

    def certificates(self, role, name, *more):
        """The flags of one who has a certificate of that role and name."""
        pki = self.path("pki")
        if not os.path.exists(pki):
            self.client("pki", "init", "--dir", pki)
        self.client("pki", "issue", "--dir", pki, "--role", role, "--name", name, *more)
        files = {"ca": "ca.crt", "cert": f"{role}-{name}.crt", "key": f"{role}-{name}.key"}
        return [text for flag, file in files.items() for text in ("--" + flag, os.path.join(pki, file))]

    def test_who_is_whom_the_certificate_names_and_tls_comes_and_goes(self):
        self.identity = self.certificates("operator", "alice")
        target = self.start("spate-target", "--listen", "127.0.0.1:0", "--stats", "127.0.0.1:0",
                            "--listen-plain", "127.0.0.1:0",
                            *self.certificates("target", "server", "--host", "127.0.0.1"),
                            ready=r"listening on (\S+) stats on (\S+) plain on (\S+)$")
        encrypted, stats, plain = target.ready.groups()
        self.controller = self.start_controller(*self.certificates("controller", "control"))
        for name in ("pc-01", "pc-02"):
            self.start_agent(self.controller, name, *self.certificates("agent", name))
        self.follow(cluster.plan(f"grpc://{plain}", probe=stats, connections=20, phases=LONG))
        self.set(f"target.url=grpcs://{encrypted}", "--reason", "what does it cost?")
        self.everybody_on(2)
        self.told(rf"epoch 2 from 1: target.url=grpcs://{encrypted} by alice: what does it cost")
        self.open_connections(20)
        self.identity = self.certificates("operator", "bob")
        self.set(f"target.url=grpc://{plain}", "load.connections=10")
        self.everybody_on(3)
        self.open_connections(10)
        self.verb("pause", "last")
        self.assertEqual([(c["epoch"], c["who"]) for c in self.status()["changes"]],
                         [(2, "alice"), (3, "bob"), (4, "bob")])
        # An agent's certificate orders nothing.
        self.identity = self.certificates("agent", "pc-03")
        self.assertIn("operator", self.verb("resume", "last", expected_exit=1).stderr)
        self.identity = self.certificates("operator", "carol")
        self.end()

    def test_a_store_that_cannot_be_written_is_told_within_seconds(self):
        self.begin()
        with contextlib.closing(sqlite3.connect(self.path("store.sqlite"), isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")  # nobody else can write
            begin = time.monotonic()
            undecided = self.set("load.connections=60", expected_exit=1)
            self.assertLess(time.monotonic() - begin, 20)
            self.assertRegex(undecided.stderr, r"cannot store a change: cannot write the store .*then try again")
            self.assertRegex(undecided.stderr, r"not decided: `spate status \S+` shows")
            begin = time.monotonic()
            refused = self.verb("pause", "last", expected_exit=1)
            self.assertLess(time.monotonic() - begin, 5)
            self.assertIn("nothing was changed", refused.stderr)
            self.assertIn("TROUBLE: cannot write the store", self.verb("status", "last").stdout)
            db.execute("ROLLBACK")
        self.told("the store can be written again")
        self.everybody_on(2)
        self.open_connections(60)
        self.end()

    def test_changes_outlive_the_controller(self):
        self.begin(listen=f"127.0.0.1:{support.free_port()}")
        self.set("load.connections=60", "--at", "+6s", "--reason", "for later")
        self.set("call.compress=true")
        self.controller.kill()
        self.controller = self.start_controller(listen=self.controller.address, label="controller-2")
        self.told("controller restarted away_s=")
        # The one for now was the second one accepted.
        self.everybody_on(self.status()["changes"][1]["epoch"] + 1)
        self.open_connections(60)
        before = self.status()["changes"]
        self.assertEqual([(c["what"], c["reason"]) for c in before],
                         [("load.connections=60", "for later"), ("call.compress=true", "")])
        epoch = self.status()["live"]["epoch"]
        self.assertIn(f"epoch {epoch}", self.set("load.connections=8", "--if-epoch", "1", expected_exit=4).stderr)
        self.assertEqual(self.status()["changes"], before)
        self.set("load.connections=8", "--if-epoch", str(epoch))
        self.open_connections(8)
        summary = self.end()
        self.assertEqual(summary["connections"]["opened"], 60)
        self.assertEqual(summary["connections"]["closed"], 52)

    def test_a_lost_agents_share_moves_when_its_lease_has_ended(self):
        # Leases of 10 s, so that the test need not wait for ten minutes.
        self.begin(agents=3, connections=30, redistribute=True)
        lost = self.agents[2]
        lost.kill()
        killed_at = time.monotonic()
        self.told("agent lost agent=pc-03")
        support.eventually(lambda: self.status()["live"]["epoch"] > 1, "the change that moves the share", timeout=40,
                           every=0.2)
        # The last lease was given by a heartbeat, which comes once a second; nothing has moved before its end.
        self.assertGreater(time.monotonic() - killed_at, 8)
        change = self.status()["changes"][0]
        self.assertEqual(change["who"], "controller")
        self.connections_are(15, 15)
        self.start_agent(self.controller, "pc-03")
        self.connections_are(10, 10, 10)
        summary = self.stop()
        # What was in flight when it was killed is unknown, and nothing else.
        self.assertIn(summary["balance"], ("BALANCED", "EXPLAINED"), summary["balance_lines"])
        self.assertLessEqual(summary["requests"]["sent"] - summary["requests"]["ok"], 10, summary)
        self.assertEqual(summary["records"]["gaps"], 0, summary)
        self.assertTrue(any("pc-03" in r and "away" in r for r in summary["reasons"]), summary["reasons"])

    def connections_are(self, *each):
        """Until the agents that are there have so many, by what they are told and what they have opened."""
        def told():
            return tuple(a["connections"] for a in self.status()["live"]["agents"] if a["state"] == "online")
        support.eventually(lambda: told() == each, f"connections {each}", timeout=40, every=0.2)
        self.open_connections(sum(each))


if __name__ == "__main__":
    unittest.main()
