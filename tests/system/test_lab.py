"""The lab: R1's set-up, 13 PCs x 300 connections on links of 100 Mbit, mutual TLS, in network namespaces."""

import json
import os
import unittest

import cluster
import lan
import support

LAB = os.path.join(support.REPOSITORY, "deploy", "lab", "lab")
PLAN = os.path.join(support.REPOSITORY, "plans", "r1-allocator-flood.jsonc")


class LabTest(cluster.ClusterTest):
    def test_thirteen_pcs_with_three_hundred_connections_each(self):
        before = lan.namespaces()
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
        self.assertEqual(lan.namespaces(), before, "everything was taken down again")


if __name__ == "__main__":
    lan.skip_without_namespaces()
    unittest.main(verbosity=2)
