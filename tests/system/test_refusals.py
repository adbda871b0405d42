"""What cannot work is refused before anything starts, with what was wrong, where, and what to do."""

import json
import signal
import socket
import threading
import unittest

import cluster
import support


class RefusalTest(cluster.ClusterTest):
    def refused(self, controller, content, *needles, expected_exit=2, arguments=()):
        """The run must be refused with every needle in the message."""
        path = self.write_plan(content, f"refused-{len(self._processes)}.jsonc")
        run = self.start_run(controller, path, *arguments, label=f"refused-{len(self._processes)}")
        self.assertEqual(run.wait(60), expected_exit, run.tail())
        for needle in needles:
            self.assertIn(needle, run.stderr)
        return run.stderr

    def test_all_mistakes_of_a_plan_at_once_with_their_lines(self):
        text = """{
  "name": "bad",   // a comment
  "target": "local",
  "load": {"conections": 10, "pause": "fast"},
  "agents": {"count": 0},
  "phases": [
    {"name": "flood", "for": 30}
  ]
}
"""
        path = self.write_plan(text, "bad.jsonc")
        check = self.client("plan", "check", path, expected_exit=2)
        said = check.stdout + check.stderr
        for needle in ("bad.jsonc:4", "conections", "connections", "pause", "bad.jsonc:5", "/agents/count",
                       "bad.jsonc:7", "/phases/0/for", "30s"):
            self.assertIn(needle, said)

    def test_before_any_load(self):
        target = self.start_target()
        controller = self.start_controller()
        self.start_agents(controller, 1)
        good = dict(probe=target.stats_address, agents=1, connections=4)
        with self.subTest("a target that does not answer"):
            dead = support.free_port()
            self.refused(controller, cluster.plan(f"grpc://127.0.0.1:{dead}", agents=1), f"127.0.0.1:{dead}")
        with self.subTest("a method the target does not know"):
            content = cluster.plan(target.url, **good)
            content["call"] = {"method": "peer.v1.Peer/Add", "message": {"a": 1},
                               "proto": support.REPOSITORY + "/tests/system/peer.proto"}
            self.refused(controller, content, "peer.v1.Peer/Add")
        with self.subTest("a method the types do not have"):
            content = cluster.plan(target.url, **good)
            content["call"] = {"method": "spate.target.v1.Calls/Cal", "message": {}}
            self.refused(controller, content, "Cal")
        with self.subTest("a target that is not on the agent's list"):
            self.refused(controller, cluster.plan("grpc://10.99.99.99:7000", agents=1), "10.99.99.99", "--allow")
        with self.subTest("more connections than descriptors"):
            content = cluster.plan(target.url, probe=target.stats_address, agents=1, connections=5_000_000)
            said = self.refused(controller, content, "descriptors")
            self.assertRegex(said, r"5,?000,?\d{3}")
        with self.subTest("fewer agents than the plan asks for"):
            self.refused(controller, cluster.plan(target.url, agents=3), "pc-01", "3", expected_exit=1,
                         arguments=("--wait", "1s"))
        # Nothing of all this reached the target.
        summary = self.run_plan(controller, cluster.plan(target.url, **good))
        self.assert_clean(summary)
        self.assertEqual(summary["target"]["received"], summary["requests"]["sent"])

    def test_an_owners_rate_that_is_none(self):
        for rate, needle in (("500", "500/s"), ("0/s", "more than 0"), ("fast", "not a rate")):
            agent = self.start("spate-agent", "--max-rate", rate, "--state", self.path("state"), label="rate")
            self.assertEqual(agent.wait(), 2)
            self.assertIn("--max-rate", agent.stderr)
            self.assertIn(needle, agent.stderr)

    def test_no_controller(self):
        port = support.free_port()
        agents = self.client("agents", "--controller", f"127.0.0.1:{port}", expected_exit=1)
        self.assertIn(f"127.0.0.1:{port}", agents.stderr)
        # What no run would take is said without one.
        for assignment, needle in (("load.conections=20", 'did you mean "load.connections"?'),
                                   ("load.connections=-1", "load.connections"), ("call.timeout=fast", "not a duration"),
                                   ("interval=2s", "may not change during a run"), ("paused", "path=value")):
            said = self.client("set", "last", assignment, "--controller", f"127.0.0.1:{port}", expected_exit=2)
            self.assertIn(needle, said.stderr)
            self.assertIn("nothing was changed", said.stderr)

    def test_addresses_off_loopback_need_mutual_tls(self):
        for name, arguments in (("spate-controller", ["--listen", "0.0.0.0:0", "--store", self.path("s.sqlite")]),
                                ("spate-target", ["--listen", "0.0.0.0:0"]),
                                ("spate-agent", ["--controller", "10.0.0.1:7070"]),
                                ("spate", ["agents", "--controller", "10.0.0.1:7070"])):
            with self.subTest(name):
                process = self.start(name, *arguments, label="tls-" + name)
                self.assertEqual(process.wait(), 2, process.tail())
                self.assertIn("TLS", process.stderr)

    def test_a_run_that_is_not_there(self):
        controller = self.start_controller()
        for verb in ("report", "verify", "stop", "status"):
            with self.subTest(verb):
                process = self.client(verb, "no-such-run", "--controller", controller.address, expected_exit=4,
                                      label=verb)
                self.assertIn("no-such-run", process.stderr)


class ScriptedServer:
    """Completes the handshake of HTTP/2 and answers pings; on a request it sends `answer`, which may be nothing."""

    PREFACE = 24
    SETTINGS = bytes.fromhex("000000040000000000")
    # A HEADERS frame for stream 1 whose HPACK block refers to a table entry that cannot exist.
    NONSENSE = bytes.fromhex("000002010400000001") + b"\xff\xff"

    def __init__(self, answer):
        self.connections = 0
        self._on_request = answer
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._socket.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            try:
                connection.sendall(self.SETTINGS)
                data = b""
                while True:
                    part = connection.recv(65536)
                    if not part:
                        return
                    data += part
                    connection.sendall(self._answer(data[self.PREFACE:]))
            except OSError:
                return

    def _answer(self, frames):
        """Acknowledges pings, and ends with the scripted bytes once a DATA frame shows that a request was sent."""
        answer = b""
        while len(frames) >= 9:
            length, kind, flags = int.from_bytes(frames[:3], "big"), frames[3], frames[4]
            if kind == 0:
                return answer + self._on_request
            if kind == 6 and not flags & 1 and len(frames) >= 17:
                answer += bytes.fromhex("0000080601") + bytes(4) + frames[9:17]
            frames = frames[9 + length:]
        return answer


class OddTargetTest(cluster.ClusterTest):
    def serve(self, answer):
        server = ScriptedServer(answer)
        self.addCleanup(server.close)
        return server

    def test_requests_without_an_answer_time_out_and_ctrl_c_twice_leaves_at_once(self):
        server = self.serve(b"")
        controller = self.start_controller()
        self.start_agents(controller, 1)
        content = cluster.plan(f"grpc://127.0.0.1:{server.port}", agents=1, connections=3, drain="60s",
                               phases=[{"name": "flood", "for": "60s"}])
        content["call"] = dict(cluster.NESTED_CALL, timeout="1h")
        run = self.start_run(controller, self.write_plan(content))
        support.eventually(lambda: "run started" in run.stderr, "the start")
        run.signal(signal.SIGINT)
        support.eventually(lambda: "stopping" in run.stderr.lower(), "the first Ctrl-C is answered")
        self.assertTrue(run.is_running(), "it drains")
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(5), 105, run.tail())

    def test_timeouts_are_an_outcome_and_keep_the_connection(self):
        server = self.serve(b"")
        controller = self.start_controller()
        self.start_agents(controller, 1)
        content = cluster.plan(f"grpc://127.0.0.1:{server.port}", agents=1, connections=3)
        content["call"] = dict(cluster.NESTED_CALL, timeout="200ms")
        run = self.start_run(controller, self.write_plan(content))
        run.wait(60)
        summary = json.loads(run.stdout)
        self.assert_adds_up(summary)
        self.assertEqual(summary["requests"]["timed_out"] + summary["requests"]["cancelled"],
                         summary["requests"]["sent"])
        self.assertGreaterEqual(summary["requests"]["timed_out"], 3 * 5)
        self.assertEqual(summary["connections"]["opened"], 3)
        self.assertGreater(summary["latency_ns"]["p50"], 190e6)

    def test_malformed_http2_is_counted_and_the_connection_comes_back(self):
        server = self.serve(ScriptedServer.NONSENSE)
        controller = self.start_controller()
        self.start_agents(controller, 1)
        plan = self.write_plan(cluster.plan(f"grpc://127.0.0.1:{server.port}", agents=1, connections=3))
        run = self.start_run(controller, plan)
        run.wait(60)
        summary = json.loads(run.stdout)
        self.assert_adds_up(summary)
        self.assertEqual(summary["requests"]["ok"], 0)
        self.assertGreater(summary["requests"]["failed"], 3)
        self.assertTrue(any("protocol_error" in key for key in summary["errors"]), summary["errors"])
        self.assertGreater(server.connections, 6, "the agent reconnects")


if __name__ == "__main__":
    unittest.main(verbosity=2)
