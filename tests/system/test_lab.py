"""The lab: R1's set-up, 13 PCs x 300 connections on links of 100 Mbit, mutual TLS, in network namespaces."""

import json
import os
import subprocess
import sys
import unittest

import cluster
import support

LAB = os.path.join(support.REPOSITORY, "deploy", "lab", "lab")
PLAN = os.path.join(support.REPOSITORY, "plans", "r1-allocator-flood.jsonc")
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def why_no_namespaces():
    """What keeps this machine from running programs in network namespaces; empty if nothing does."""
    name = f"spate-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return made.stderr.strip()
    ran = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ran.stderr.strip() if ran.returncode != 0 else ""


def namespaces():
    return set(subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split())


class LabTest(cluster.ClusterTest):
    def test_thirteen_pcs_with_three_hundred_connections_each(self):
        before = namespaces()
        lab = self.start_command("lab", [LAB, "run", PLAN, "--pcs", "13", "--link", "100mbit", "--for", "20s", "--",
                                         "-o", "json", "--report", self.path("lab.html")],
                                 env={"SPATE_BIN": support.BIN})
        code = lab.wait(240)
        self.assertEqual(code, 0, lab.tail(80))
        summary = json.loads(lab.stdout[lab.stdout.index("{"):])
        self.assert_adds_up(summary)
        self.assertEqual(summary["agents"], 13)
        self.assertEqual(summary["connections"]["requested"], 3900)
        self.assertEqual(summary["connections"]["established"], 3900)
        self.assertEqual(summary["balance"], "BALANCED", summary)
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])
        self.assertEqual(summary["records"]["gaps"], 0)
        self.assertGreater(summary["requests"]["ok"], 3900)
        self.assertEqual(namespaces(), before, "everything was taken down again")


if __name__ == "__main__":
    reason = why_no_namespaces()
    if reason:
        print(f"skipped: this needs root, network namespaces, and a root folder that is a mount point: {reason}",
              file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
