"""Servers that nobody here wrote count what an agent says it sent: Python's grpcio and npm's @grpc/grpc-js."""

import os
import signal
import subprocess
import unittest

import cluster
import support

PEER_PROTO = os.path.join(support.REPOSITORY, "tests", "system", "peer.proto")
LISTENING = r"^listening on (\S+)$"


def call(method="Add"):
    return {"method": f"peer.v1.Peer/{method}", "proto": PEER_PROTO, "timeout": "5s",
            "message": {"a": "{{random 1 1000}}", "b": "{{seq}}", "label": "{{agent}} on {{connection}}"}}


class ForeignServerTest(cluster.ClusterTest):
    def flood(self, server, method="Add", connections=30, types=None):
        controller = self.start_controller()
        self.start_agents(controller, 2)
        content = cluster.plan(f"grpc://{server.ready.group(1)}", connections=connections, call=call(method))
        if types:
            del content["call"]["proto"]
            content["call"]["descriptor_set"] = types
        summary = self.run_plan(controller, content)
        self.assert_adds_up(summary)
        self.assertEqual(summary["verdict"], "VALID", summary)
        self.assertEqual(summary["records"]["gaps"], 0)
        server.signal(signal.SIGTERM)
        counted = int(server.wait_for_line(r"^received (\d+)$").group(1))
        self.assertEqual(counted, summary["requests"]["sent"], "the server's own count")
        return summary

    def start_grpcio(self):
        return self.start_command("grpcio", ["/usr/bin/python3", os.path.join(os.path.dirname(__file__),
                                                                              "grpcio_server.py")], ready=LISTENING)

    def start_grpc_js(self):
        modules = os.environ.get("NODE_PATH", os.path.join(support.REPOSITORY, "build", "test-peers", "node_modules"))
        script = os.path.join(support.REPOSITORY, "tests", "js", "grpc_server.js")
        return self.start_command("grpc-js", ["node", script, PEER_PROTO], ready=LISTENING,
                                  env={"NODE_PATH": modules})

    def test_grpcio(self):
        summary = self.flood(self.start_grpcio())
        self.assertEqual(summary["requests"]["ok"], summary["requests"]["sent"])

    def test_grpc_js(self):
        summary = self.flood(self.start_grpc_js())
        self.assertEqual(summary["requests"]["ok"], summary["requests"]["sent"])

    def test_types_from_a_descriptor_set(self):
        types = self.path("peer.pb")
        subprocess.run(["protoc", f"-I{os.path.dirname(PEER_PROTO)}", f"--descriptor_set_out={types}",
                        os.path.basename(PEER_PROTO)], check=True, cwd=os.path.dirname(PEER_PROTO))
        summary = self.flood(self.start_grpcio(), types=types)
        self.assertEqual(summary["requests"]["ok"], summary["requests"]["sent"])

    def test_application_errors_of_grpcio_are_data(self):
        summary = self.flood(self.start_grpcio(), method="Fail")
        self.assertEqual(summary["requests"]["failed"], summary["requests"]["sent"])
        self.assertTrue(any("always fails" in key for key in summary["errors"]), summary["errors"])

    def test_application_errors_of_grpc_js_are_data(self):
        summary = self.flood(self.start_grpc_js(), method="Fail")
        self.assertEqual(summary["requests"]["failed"], summary["requests"]["sent"])
        self.assertTrue(any("always fails" in key for key in summary["errors"]), summary["errors"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
