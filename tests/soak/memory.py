#!/usr/bin/python3
"""Does the memory of a controller and its agents grow with time? A real soak on loopback, and its slope.

    tests/soak/memory.py --for 105m --warm-up 65m --agents 4 --connections 400 --samples soak.csv > soak.md

Starts a controller, agents and the bundled target, floods for the time given, changes the parameters all the
while, reads every process's resident memory every 10 s, and prints a table: the slope is the least-squares line
through all samples after the warm-up, with its 95 % interval. The controller keeps the last 2,000 points of a live
run, which take half an hour of 1 s intervals to fill, and as long again after they are merged: a warm-up shorter than
that measures them. Exit status 1 if the slope of the controller or of an agent is over the limit, or if the run is not
VALID and BALANCED.
"""

import argparse
import json
import math
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

import cluster  # noqa: E402

LIMIT_MB_PER_HOUR = 0.5
SAMPLE_EVERY = 10.0
UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text):
    return float(text[:-1]) * UNITS[text[-1]]


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def slope(points):
    """Of a least-squares line, and half of its 95 % interval, per second."""
    n = len(points)
    mean_t = sum(t for t, _ in points) / n
    mean_v = sum(v for _, v in points) / n
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    b = sum((t - mean_t) * (v - mean_v) for t, v in points) / spread
    rest = sum((v - mean_v - b * (t - mean_t)) ** 2 for t, v in points)
    return b, 1.96 * math.sqrt(rest / (n - 2) / spread)


class Soak(cluster.ClusterTest):
    options = None

    def test_memory(self):
        o = self.options
        controller = self.start_controller()
        target = self.start_target("--threads", "2")
        agents = self.start_agents(controller, o.agents)
        content = cluster.plan(target.url, probe=target.stats_address, name="memory-soak", agents=o.agents,
                               connections=o.connections,
                               phases=[{"name": "soak", "for": o.length}], interval="1s")
        content["load"] = {"model": "closed", "connections": o.connections, "calls_per_loop": 5, "pause": "1s"}
        run = self.start_run(controller, self.write_plan(content))
        processes = {"controller": controller, "target": target, **{a.name: a for a in agents}}
        samples = {name: [] for name in processes}
        begin = time.monotonic()
        end = begin + seconds(o.length)
        next_change, changes = begin + o.change_every, 0
        if o.samples:
            print("seconds", *processes, sep=",", file=o.samples, flush=True)
        while (now := time.monotonic()) < end and run.is_running():
            for name, process in processes.items():
                samples[name].append((now - begin, resident_bytes(process.pid)))
            if o.samples:
                print(round(now - begin), *(s[-1][1] for s in samples.values()), sep=",", file=o.samples, flush=True)
            if o.change_every and now >= next_change:
                next_change += o.change_every
                changes += 1
                values = ["load.connections=%d" % (o.connections // (1 + changes % 2)),
                          "call.compress=%s" % ("true" if changes % 2 else "false")]
                self.client("set", "last", *values, "--controller", controller.address, "--reason", f"change {changes}",
                            label="set")
            time.sleep(max(0.0, begin + len(samples["controller"]) * SAMPLE_EVERY - time.monotonic()))
        code = run.wait(300)
        self.report(samples, json.loads(run.stdout), changes)
        self.assertEqual(code, 0, run.tail(60))

    def report(self, samples, summary, changes):
        warm_up = seconds(self.options.warm_up)
        lines = ["| process | first MB | last MB | largest MB | slope MB/h | 95 % |", "|---|---|---|---|---|---|"]
        worst = 0.0
        for name, all_points in samples.items():
            points = [p for p in all_points if p[0] >= warm_up]
            b, half = slope(points)
            per_hour, half_per_hour = b * 3600 / 1e6, half * 3600 / 1e6
            if name != "target":
                worst = max(worst, per_hour)
            lines.append(f"| {name} | {points[0][1] / 1e6:.2f} | {points[-1][1] / 1e6:.2f} "
                         f"| {max(v for _, v in points) / 1e6:.2f} | {per_hour:+.3f} | ± {half_per_hour:.3f} |")
        requests = summary["requests"]
        print(f"{self.options.length}, {self.options.agents} agents, {self.options.connections} connections, "
              f"{changes} changes, {requests['sent']} requests, target received {summary['target']['received']}, "
              f"{summary['verdict']}, {summary['balance']}; "
              f"{summary['records']['stored']} records, {summary['records']['gaps']} gaps\n")
        print("\n".join(lines), flush=True)
        self.assertEqual(summary["balance"], "BALANCED", summary)
        self.assertLess(worst, LIMIT_MB_PER_HOUR)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="length", default="105m", help="30s, 60m, 2h")
    parser.add_argument("--warm-up", default="65m", help="not in the slope")
    parser.add_argument("--samples", type=argparse.FileType("w"), help="CSV: bytes of every process, every 10 s")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--connections", type=int, default=400)
    parser.add_argument("--change-every", type=float, default=60, help="seconds between changes; 0: none")
    Soak.options = parser.parse_args()
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Soak))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
