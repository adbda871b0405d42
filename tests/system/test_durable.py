"""What an agent counted outlives it: killed under load, its disk full, its state folder in use."""

import contextlib
import os
import re
import sqlite3
import unittest

import cluster
import support


def wait_for_progress(run, intervals=3):
    live = re.compile(r"^\s*\d+:\d\d/\d+:\d\d\s+flood ", re.MULTILINE)
    support.eventually(lambda: len(live.findall(run.stderr)) >= intervals, "live lines of the run", timeout=30)


class DurableTest(cluster.ClusterTest):
    CONNECTIONS = 20

    def killed_and_started_again(self, threads):
        target = self.start_target()
        controller = self.start_controller()
        agent, _ = self.start_agents(controller, 2)
        plan = self.write_plan(cluster.plan(
            target.url, probe=target.stats_address, threads=threads, connections=self.CONNECTIONS,
            phases=[{"name": "flood", "for": "8s"}]))
        run = self.start_run(controller, plan)
        wait_for_progress(run)
        agent.kill()
        again = self.start_agent(controller, "pc-01")
        self.assertIn("ended_by=killed", again.stderr)
        self.assertRegex(again.stderr, r"open intervals recovered run=\S+ incarnation=1 records=[1-9]")
        run.wait(60)
        summary = self.finish(run, expected_exit=run.wait())
        requests = summary["requests"]
        received = summary["target"]["received"]
        # What was in flight when it was killed may or may not have reached the target. Nothing else is open.
        finished = requests["ok"] + requests["failed"] + requests["timed_out"] + requests["cancelled"]
        self.assertLessEqual(finished, received, summary)
        self.assertLessEqual(received, requests["sent"], summary)
        self.assertLessEqual(requests["sent"] - finished, self.CONNECTIONS, summary)
        self.assertEqual(summary["records"]["gaps"], 0, summary)
        self.assertIn(summary["balance"], ("EXPLAINED", "BALANCED"), summary)
        self.assertEqual(again.stop(), 0)
        self.assertIn("all records delivered", again.stderr)

    def test_sigkill_under_load_loses_no_request(self):
        self.killed_and_started_again(threads=1)

    def test_sigkill_under_load_with_several_workers(self):
        self.killed_and_started_again(threads=4)

    def test_what_is_not_delivered_stays_and_goes_out_later(self):
        port = support.free_port()
        target = self.start_target()
        controller = self.start_controller(listen=f"127.0.0.1:{port}", label="controller-1")
        agent = self.start_agent(controller, "pc-01")
        plan = self.write_plan(cluster.plan(target.url, agents=1, phases=[{"name": "flood", "for": "60s"}]))
        run = self.start_run(controller, plan)
        wait_for_progress(run)
        controller.kill()
        run.kill()
        # It waits for a controller for half a minute, in vain.
        self.assertEqual(agent.stop(timeout=90), 0)
        kept = re.search(r"stopped; (\d+) records are not delivered. They stay in (\S+) ", agent.stderr)
        self.assertIsNotNone(kept, agent.stderr)
        with contextlib.closing(sqlite3.connect(kept.group(2))) as spool:
            last_seq, = spool.execute("SELECT last_seq FROM accounts WHERE incarnation = 1").fetchone()

        controller = self.start_controller(listen=f"127.0.0.1:{port}", label="controller-2")
        again = self.start_agent(controller, "pc-01")
        self.assertIn(f"records_in_spool={kept.group(1)}", again.stderr)
        self.assertIn("ended_by=clean stop", again.stderr)
        self.eventually_stored(incarnation=1, last_seq=last_seq)
        self.assertEqual(again.stop(timeout=90), 0)

    def eventually_stored(self, incarnation, last_seq):
        def highest():
            with contextlib.closing(sqlite3.connect(f"file:{self.path('store.sqlite')}?mode=ro", uri=True)) as store:
                return store.execute("SELECT max(seq) FROM records WHERE incarnation = ?", (incarnation,)).fetchone()[0]
        support.eventually(lambda: highest() == last_seq, f"seq {last_seq} of incarnation {incarnation} in the store")

    def test_two_agents_do_not_share_a_state_folder(self):
        controller = self.start_controller()
        self.start_agent(controller, "pc-01")
        second = self.start("spate-agent", "--controller", controller.address, "--name", "other",
                            "--state", self.path("state-pc-01"), label="second")
        self.assertEqual(second.wait(), 1)
        self.assertIn("in use by another spate-agent", second.stderr)
        self.assertIn("--state", second.stderr)

    def test_agents_with_the_same_default_name_have_a_folder_each(self):
        controller = self.start_controller()
        env = {"XDG_STATE_HOME": self.path("home"), "STATE_DIRECTORY": ""}
        for label in ("first", "second"):
            self.start("spate-agent", "--controller", controller.address, "--name", "pc", label=label, env=env,
                       ready=r"^spate-agent .* connected to \S+$")
        self.assertEqual(sorted(os.listdir(self.path("home/spate/agents"))), ["pc", "pc-2"])

    def test_a_damaged_spool_is_refused_and_left(self):
        controller = self.start_controller()
        agent = self.start_agent(controller, "pc-01")
        self.assertEqual(agent.stop(), 0)
        spool = self.path("state-pc-01", "spool.sqlite")
        with open(spool, "r+b") as f:
            f.seek(100)
            f.write(b"\xff" * 3000)
        second = self.start("spate-agent", "--controller", controller.address, "--name", "pc-01",
                            "--state", self.path("state-pc-01"), label="second")
        self.assertEqual(second.wait(), 1)
        self.assertIn("damaged", second.stderr)
        self.assertIn(spool, second.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
