#!/usr/bin/python3
"""R6 in compressed time: days of a soak with rotating parameter sets on a virtual LAN, one day in 24 s.

    sudo tests/soak/rotation.py --days 15 --day 24 --report soak.html > soak.md

Ten client PCs hold 200 connections each, ten parameter sets go round among them, one step a day (plans/r6-soak.jsonc).
A third of the way through, the controller is killed and started again 5 s later; two thirds through, the agent on pc-03
is killed and started again 3 s later. At the end the agents' totals must be the target's, to the last request, but for
what that agent had in flight when it died. Prints R6's table. Needs root; everything is in namespaces of its own.
"""

import argparse
import json
import os
import shutil
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

import lan  # noqa: E402
import support  # noqa: E402

PLAN = os.path.join(support.REPOSITORY, "plans", "r6-soak.jsonc")


class Rotation(lan.LanTest):
    options = None

    def test_rotation(self):
        o = self.options
        length = o.days * o.day
        with lan.Lan(self, pcs=10, target=["--threads", "2", "--compress"]) as net:
            net.start_all()
            content = open(PLAN, encoding="utf-8").read().replace("10.0.0.100", lan.SERVER)
            guard = o.guard or max(1, o.day // 6)
            run = net.client("run", self.write_plan(content), "-o", "json", "--report", self.path("soak.html"),
                             "--for", f"{length}s", "--set", f"rotate.every={o.day}s", "--set",
                             f"rotate.guard={guard}s", "--set", "interval=1s", "--set", f"load.pause={o.pause}",
                             label="run")
            self.away(net.control, begin=length / 3, pause=5)
            self.away(net.pcs[2], begin=length / 3, pause=3)
            code = run.wait(length + 120)
            self.assertIn(code, (0, 3), run.tail(60))
            summary = json.loads(run.stdout[run.stdout.index("{"):])
            verify = net.client("verify", summary["run"], label="verify")
            verify.wait(60)
            self.assertIn(summary["balance"], ("BALANCED", "EXPLAINED"), run.tail(60) + verify.stdout)
            self.show(run, summary, verify)

    def away(self, pc, begin, pause):
        """Kills the PC's program `begin` seconds from now, and starts it again after `pause` more."""
        time.sleep(begin)
        pc.kill()
        time.sleep(pause)
        pc.start()

    def show(self, run, summary, verify):
        if self.options.report:
            shutil.copy(self.path("soak.html"), self.options.report)
        print(f"{self.options.days} days of {self.options.day} s: {summary['verdict']} {summary['reasons']}, "
              f"{summary['balance']}; sent {summary['requests']['sent']}, target received "
              f"{summary['target']['received']}, connections opened {summary['connections']['opened']}, "
              f"records {summary['records']}\n")
        print(run.stderr)
        print(verify.stdout, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=15)
    parser.add_argument("--day", type=int, default=24, help="seconds")
    parser.add_argument("--guard", type=int, help="seconds after each step that are not measured; default: a sixth of a day")
    parser.add_argument("--pause", default="3s", help="of each connection between two requests")
    parser.add_argument("--report", help="keep the HTML report there")
    Rotation.options = parser.parse_args()
    lan.skip_without_namespaces()
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Rotation))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
