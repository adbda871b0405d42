"""A run outlives its controller, and its agents' processes: real processes on loopback."""

import shutil
import signal
import time
import unittest

import cluster
import support
from test_flood import wait_for_progress

PHASES = [{"name": "flood", "for": "14s"}]


class SurvivalTest(cluster.ClusterTest):
    def start_all(self, agents=2, **options):
        self.target = self.start_target()
        self.port = support.free_port()
        self.controller = self.start_controller(listen=f"127.0.0.1:{self.port}", label="controller-1")
        self.agents = self.start_agents(self.controller, agents)
        plan = self.write_plan(cluster.plan(self.target.url, probe=self.target.stats_address, agents=agents,
                                            phases=PHASES, **options))
        self.run_process = self.start_run(self.controller, plan)
        wait_for_progress(self.run_process, 8)

    def again(self, *arguments, label="controller-2"):
        return self.start_controller(*arguments, listen=f"127.0.0.1:{self.port}", label=label)

    def assert_nothing_is_missing(self):
        summary = self.finish(self.run_process, timeout=90)
        self.assert_clean(summary)
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])
        self.assertAlmostEqual(summary["duration_s"], 14, delta=0.1)
        self.assertIn("the controller is there again", self.run_process.stderr)
        self.assertIn("controller restarted away_s=", self.run_process.stderr)
        verify = self.client("verify", summary["run"], "--controller", self.controller.address, label="verify")
        self.assertIn("BALANCED", verify.stdout)
        return summary

    def test_a_killed_controller(self):
        self.start_all()
        self.controller.kill()
        time.sleep(2)  # what happens meanwhile comes late
        self.again()
        self.assert_nothing_is_missing()
        self.assertRegex(self.run_process.stderr, r"records came late after the controller's restart count=[1-9]")

    def test_a_controller_that_is_upgraded(self):
        self.start_all()
        self.assertEqual(self.controller.stop(), 0)
        self.again()
        self.assert_nothing_is_missing()

    def test_a_killed_agent_is_back_in_its_share(self):
        self.start_all()
        self.agents[0].kill()
        time.sleep(1)
        self.start_agent(self.controller, "pc-01")
        # From its hello to the load: pre-flight and connections take some milliseconds.
        log = lambda: self.run_process.stderr
        support.eventually(lambda: "agent restarted agent=pc-01" in log(), "the restart", timeout=10)
        support.eventually(lambda: "agent back in its share agent=pc-01" in log(), "its return", timeout=5)
        summary = self.finish(self.run_process, timeout=90)
        self.assertEqual(summary["verdict"], "SUSPECT", summary["reasons"])
        self.assertTrue(any("pc-01" in r and "away" in r for r in summary["reasons"]), summary["reasons"])
        self.assertIn(summary["balance"], ("BALANCED", "EXPLAINED"), summary["balance_lines"])
        self.assertEqual(summary["records"]["gaps"], 0, summary)

    def test_a_controller_with_an_older_copy_of_the_store_is_fenced(self):
        self.start_all()
        self.controller.stop()
        shutil.copy(self.path("store.sqlite"), self.path("old.sqlite"))
        for n in (2, 3):
            newer = self.again(label=f"controller-{n}")
            support.eventually(lambda: newer.stderr.count("agent joined") == 2, "the agents are there")
            newer.stop()
        copy = self.start("spate-controller", "--listen", f"127.0.0.1:{self.port}", "--store",
                          self.path("old.sqlite"), label="copy")
        self.assertEqual(copy.wait(30), 4)
        self.assertIn("term 2 superseded by 3", copy.stderr)
        self.again(label="controller-4")
        self.assert_nothing_is_missing()

    def test_a_second_controller_on_the_same_store_is_refused(self):
        controller = self.start_controller()
        second = self.start("spate-controller", "--listen", "127.0.0.1:0", "--store", self.path("store.sqlite"),
                            label="second")
        self.assertEqual(second.wait(20), 1)
        self.assertIn(f"in use by another spate-controller (pid {controller.pid})", second.stderr)
        controller.signal(signal.SIGTERM)
        self.assertEqual(controller.wait(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
