"""The spine end to end: real controller, agents, target and client on loopback."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import unittest

import cluster
import support

LONG = [{"name": "flood", "for": "60s"}]


def wait_for_progress(run, intervals=3):
    """Until `spate run` has printed lines for some intervals."""
    live = re.compile(r"^\s*\d+:\d\d/\d+:\d\d\s+flood ", re.MULTILINE)
    support.eventually(lambda: len(live.findall(run.stderr)) >= intervals, "live lines of the run", timeout=30)


class FloodTest(cluster.ClusterTest):
    def test_ten_seconds_balance_to_the_last_request(self):
        log = self.path("reference.log")
        target = self.start_target("--log", log, "--log-every", "500")
        controller = self.start_controller()
        self.start_agents(controller, 2)
        summary = self.run_plan(controller, cluster.plan(
            target.url, probe=target.stats_address, connections=100,
            phases=[{"name": "warm-up", "for": "1s", "measured": False}, {"name": "flood", "for": "9s"}]))
        self.assert_clean(summary)
        self.assertEqual(summary["connections"]["established"], 100)
        self.assertEqual(summary["connections"]["opened"], 100)
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])
        self.assertEqual(summary["agents"], 2)
        self.assertEqual(summary["epochs"], 1)
        self.assertEqual(summary["summary_version"], 1)
        self.assertEqual(target.stop(), 0)
        with open(log, encoding="utf-8") as f:
            last_row = f.read().strip().splitlines()[-1]
        self.assertEqual(int(last_row.split(";")[3]), summary["requests"]["sent"])

        verify = self.client("verify", summary["run"], "--controller", controller.address, label="verify")
        self.assertIn("BALANCED", verify.stdout)
        for form in ("html", "csv", "json", "reference"):
            out = self.path("report." + form)
            self.client("report", summary["run"], "--format", form, "--out", out,
                        "--controller", controller.address, label="report-" + form)
            self.assertGreater(os.path.getsize(out), 100)
        with open(self.path("report.reference"), encoding="utf-8") as f:
            rows = f.read().strip().splitlines()
        self.assertEqual(int(rows[-1].split(";")[3]), summary["requests"]["sent"])

    def test_steps_of_a_sweep_are_epochs_with_exact_connections(self):
        target = self.start_target()
        controller = self.start_controller()
        self.start_agents(controller, 2)
        steps = [{"name": f"step-{n}", "for": "1s", "load": {"connections": n}} for n in (3, 31, 7)]
        summary = self.run_plan(controller, cluster.plan(
            target.url, probe=target.stats_address, connections=3, threads=2, phases=steps))
        self.assert_clean(summary)
        self.assertEqual(summary["epochs"], 3)
        # 3 at the start, 28 more for the second step, 24 closed for the third.
        self.assertEqual(summary["connections"]["opened"], 31)
        self.assertEqual(summary["connections"]["closed"], 24)

    def test_loops_with_pauses(self):
        target = self.start_target()
        controller = self.start_controller()
        self.start_agents(controller, 1)
        content = cluster.plan(target.url, probe=target.stats_address, connections=10, agents=1)
        content["load"].update(calls_per_loop=5, pause="500ms")
        summary = self.run_plan(controller, content)
        self.assert_clean(summary)
        # 2 s of loops that take at least 500 ms each: at most five have started.
        self.assertLessEqual(summary["requests"]["ok"], 10 * 5 * 5)
        self.assertGreaterEqual(summary["requests"]["ok"], 10 * 5 * 2)

    def test_an_agent_killed_in_the_middle_is_a_gap_and_a_reason(self):
        target = self.start_target()
        controller = self.start_controller()
        agents = self.start_agents(controller, 3)
        plan = self.write_plan(cluster.plan(target.url, probe=target.stats_address, agents=3, connections=30,
                                            phases=[{"name": "flood", "for": "10s"}]))
        run = self.start_run(controller, plan)
        wait_for_progress(run)
        agents[1].kill()
        summary = self.finish(run, expected_exit=3)
        self.assertEqual(summary["verdict"], "INVALID")
        self.assertTrue(any("pc-02" in reason for reason in summary["reasons"]), summary["reasons"])
        self.assertGreaterEqual(summary["records"]["gaps"], 1)
        self.assertIn(summary["balance"], ("EXPLAINED", "BALANCED"))
        with open(self.path("run.html"), encoding="utf-8") as f:
            self.assertIn("pc-02", f.read())

    def test_an_agent_that_is_shut_down_in_the_middle_delivers_and_is_named(self):
        target = self.start_target()
        controller = self.start_controller()
        agents = self.start_agents(controller, 2)
        plan = self.write_plan(cluster.plan(target.url, probe=target.stats_address,
                                            phases=[{"name": "flood", "for": "6s"}]))
        run = self.start_run(controller, plan)
        wait_for_progress(run)
        self.assertEqual(agents[0].stop(), 0)
        summary = self.finish(run, expected_exit=3)
        self.assertTrue(any("pc-01" in reason for reason in summary["reasons"]), summary["reasons"])
        self.assertEqual(summary["balance"], "BALANCED", "what it had done was delivered")
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])

    def test_a_target_restart_in_the_middle(self):
        port = support.free_port()
        stats = support.free_port()
        listen = ["--stats", f"127.0.0.1:{stats}"]
        target = self.start_target(*listen, listen=f"127.0.0.1:{port}", label="target-1")
        controller = self.start_controller()
        self.start_agents(controller, 2)
        plan = self.write_plan(cluster.plan(target.url, probe=target.stats_address, connections=20,
                                            phases=[{"name": "flood", "for": "12s"}]))
        run = self.start_run(controller, plan)
        wait_for_progress(run)
        target.kill()
        self.start_target(*listen, listen=f"127.0.0.1:{port}", label="target-2")
        run.wait(60)
        summary = self.finish(run, expected_exit=run.wait())
        self.assert_adds_up(summary)
        self.assertIn(run.wait(), (0, 3))
        self.assertIn(summary["balance"], ("EXPLAINED", "BALANCED"), summary)
        self.assertGreaterEqual(summary["connections"]["closed"], 20)
        self.assertGreaterEqual(summary["connections"]["opened"], 40, "every connection came back")
        self.assertTrue(any("restart" in reason for reason in summary["reasons"]), summary["reasons"])

    def test_ctrl_c_drains_and_reports(self):
        target = self.start_target()
        controller = self.start_controller()
        self.start_agents(controller, 2)
        plan = self.write_plan(cluster.plan(target.url, probe=target.stats_address, phases=LONG))
        run = self.start_run(controller, plan)
        wait_for_progress(run)
        run.signal(signal.SIGINT)
        summary = self.finish(run, expected_exit=105)
        self.assert_adds_up(summary)
        self.assertEqual(summary["balance"], "BALANCED")
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])
        self.assertTrue(os.path.exists(self.path("run.html")))

    def test_a_killed_controller_leaves_a_record_and_a_report(self):
        target = self.start_target()
        port = support.free_port()
        controller = self.start_controller(listen=f"127.0.0.1:{port}", label="controller-1")
        agents = self.start_agents(controller, 2)
        plan = self.write_plan(cluster.plan(target.url, probe=target.stats_address, phases=LONG))
        run = self.start_run(controller, plan)
        wait_for_progress(run, 6)
        controller.kill()
        again = self.start_controller("--no-adopt", listen=f"127.0.0.1:{port}", label="controller-2")
        self.assertNotEqual(run.wait(90), 0)
        status = self.client("status", "--controller", again.address, label="status")
        self.assertIn("crashed", status.stdout)
        run_id = support.eventually(
            lambda: next((w for w in status.stdout.split() if w.startswith("test-")), None), "a run id")
        self.client("report", run_id, "--format", "html", "--out", self.path("after.html"),
                    "--controller", again.address, label="report")
        with open(self.path("after.html"), encoding="utf-8") as f:
            self.assertIn("INVALID", f.read())
        # The agents are told to stop and are free for the next run.
        summary = self.run_plan(again, cluster.plan(target.url, probe=target.stats_address), "--wait", "30s",
                                label="next")
        self.assert_clean(summary)
        self.assertTrue(all(agent.is_running() for agent in agents))

    def test_local_brings_its_own_cluster_and_takes_it_down(self):
        plan = self.write_plan(cluster.plan("local", connections=20))
        run = self.start("spate", "run", plan, "--local", "--agents", "2", "-o", "json",
                         "--report", self.path("local.html"), label="local",
                         env={"XDG_DATA_HOME": self.path("data"), "HOME": self.folder})
        summary = self.finish(run)
        self.assert_clean(summary)
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])

    def test_the_local_target_is_flooded_with_tls_and_without(self):
        content = cluster.plan("local", connections=20, phases=[{"name": "flood", "for": "9s"}])
        content["rotate"] = {"every": "3s", "guard": "500ms",
                             "sets": [{"name": "plain"}, {"name": "tls", "target": {"url": "grpcs://local"}}]}
        env = {"XDG_DATA_HOME": self.path("data"), "HOME": self.folder}
        run = self.start("spate", "run", self.write_plan(content), "--local", "-o", "json",
                         "--report", self.path("local.html"), label="local", env=env)
        wait_for_progress(run)
        # From another terminal: everybody with TLS to the end, over the rotation that follows.
        change = self.start("spate", "set", "last", "target.url=grpcs://local", "--at", "+1s", "--local",
                            label="set", env=env)
        self.assertEqual(change.wait(), 0, change.tail())
        # 3 where all connections of an interval were on their way to the other address.
        summary = self.finish(run, expected_exit=3 if run.wait(60) == 3 else 0)
        self.assert_adds_up(summary)
        self.assertEqual(summary["balance"], "BALANCED", summary)
        self.assertEqual(summary["requests"]["ok"], summary["requests"]["sent"], summary)
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])
        self.assertIn("by operator", run.stderr)
        rows = {row["name"]: row["encrypted"] for row in summary["parameter_sets"]["sets"]}
        self.assertFalse(rows.pop("plain"))
        self.assertTrue(rows and all(rows.values()), rows)

    def test_an_owners_cap_is_kept_and_shown(self):
        """300/s on one of two agents with two threads each: in every interval, whatever the plan wants."""
        target = self.start_target()
        controller = self.start_controller()
        self.start_agent(controller, "pc-01", "--max-rate", "300/s")
        self.start_agent(controller, "pc-02")
        content = cluster.plan(target.url, probe=target.stats_address, connections=40, threads=2,
                               phases=[{"name": "flood", "for": "3s"}])
        run = self.start_run(controller, self.write_plan(content))
        summary = self.finish(run)
        self.assert_adds_up(summary)
        self.assertEqual(summary["balance"], "BALANCED", summary)
        self.assertEqual(summary["verdict"], "SUSPECT", summary)
        self.assertIn("The owner of agent pc-01 allows 300/s", summary["reasons"][0])
        self.assertIn("agent capped by its owner agent=pc-01 max_rate=300/s", run.stderr)
        report = json.loads(self.client("report", "last", "--format", "json", "--controller",
                                        controller.address).stdout)
        agents = {a["agent"]: a for a in report["agents"]}
        capped = agents["pc-01"]
        # 3 s, 10 ms that may be made up for, and one request of each thread.
        self.assertLessEqual(capped["sent"], 300 * 3.01 + 2)
        self.assertGreater(capped["held"], 0)
        self.assertEqual(agents["pc-02"]["held"], 0)
        self.assertGreater(agents["pc-02"]["sent"], capped["sent"])
        with contextlib.closing(sqlite3.connect(f"file:{self.path('store.sqlite')}?mode=ro", uri=True)) as store:
            intervals = store.execute("SELECT start_ns, length_ns, sent FROM all_records WHERE agent = 'pc-01' "
                                      "ORDER BY seq").fetchall()
        self.assertGreaterEqual(len(intervals), 12)
        for first in range(len(intervals)):
            for last in range(first, len(intervals)):
                span = intervals[first:last + 1]
                seconds = sum(length for _, length, _ in span) / 1e9
                self.assertLessEqual(sum(sent for _, _, sent in span), 300 * (seconds + 0.01) + 2, span)



if __name__ == "__main__":
    unittest.main(verbosity=2)
