"""spate-target as a process, called by a client that nobody here wrote: Debian's grpcio."""

import os
import re
import signal
import socket
import subprocess
import threading
import unittest

import grpc

import support

support.load_protos()
from proto import target_pb2  # noqa: E402

READY = r"^spate-target listening on (\S+) stats on (\S+)$"


def nested(depth):
    expression = target_pb2.Expression(number=1)
    for _ in range(depth):
        expression = target_pb2.Expression(echo=expression)
    return target_pb2.CallRequest(call=[expression])


def nested_bytes(depth):
    """The same for depths that the Python library itself refuses to build."""
    def field(tag, body):
        size, prefix = len(body), b""
        while size >= 0x80:
            prefix, size = prefix + bytes([size & 0x7F | 0x80]), size >> 7
        return bytes([tag]) + prefix + bytes([size]) + body
    body = target_pb2.Expression(number=1).SerializeToString()
    for _ in range(depth):
        body = field(0x1A, body)
    return field(0x0A, body)


def r1_request(a=1.0, b=2.0, c=3.0, d=4.0):
    number = lambda value: target_pb2.Expression(number=value)  # noqa: E731
    return target_pb2.CallRequest(call=[target_pb2.Expression(add=[
        target_pb2.Expression(add=[number(a), number(b)]),
        target_pb2.Expression(mul=[number(c), number(d)])])])


class TargetTest(support.SystemTest):
    def start_target(self, *arguments, **options):
        target = self.start("spate-target", "--listen", "127.0.0.1:0", *arguments, ready=READY, **options)
        target.address, target.stats_address = target.ready.groups()
        return target

    def connect(self, address, **options):
        # A pool of its own: grpcio shares connections between channels with equal options otherwise.
        channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0),
                                                          ("grpc.use_local_subchannel_pool", 1)], **options)
        self.addCleanup(channel.close)
        return channel

    def caller(self, target, **options):
        return support.unary(self.connect(target.address, **options), "spate.target.v1.Calls/Call",
                             target_pb2.CallResponse)

    def stats(self, target, run=""):
        if not hasattr(target, "get_stats"):
            target.get_stats = support.unary(self.connect(target.stats_address), "spate.target.v1.Stats/Get",
                                             target_pb2.StatsReply)
        return target.get_stats(target_pb2.StatsRequest(run=run), timeout=support.TIMEOUT)

    def assert_refused(self, code, call, *arguments, **options):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, timeout=support.TIMEOUT, **options)
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        return caught.exception.details()


class Calls(TargetTest):
    def test_answers_the_nested_call(self):
        call = self.caller(self.start_target())
        reply = call(r1_request(), timeout=support.TIMEOUT)
        self.assertEqual([r.number for r in reply.result], [15.0])

    def test_answers_many_packed_calls_as_one_request(self):
        target = self.start_target()
        request = target_pb2.CallRequest()
        for i in range(1000):
            request.call.add().echo.text = f"text {i}"
        reply = self.caller(target)(request, timeout=support.TIMEOUT)
        self.assertEqual([r.text for r in reply.result], [f"text {i}" for i in range(1000)])
        stats = self.stats(target)
        self.assertEqual((stats.received, stats.completed, stats.refused), (1, 1, 0))

    def test_refuses_what_is_nested_too_deep(self):
        target = self.start_target()
        call = self.caller(target)
        self.assertEqual(call(nested(64), timeout=support.TIMEOUT).result[0].number, 1)
        raw = self.connect(target.address).unary_unary("/spate.target.v1.Calls/Call")
        for depth in (65, 100, 1000, 100_000):
            details = self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT, raw, nested_bytes(depth))
            self.assertEqual(details, "call[0]: nested deeper than 64 calls")
        # An application error is an answer.
        self.assertEqual(self.stats(target).completed, 5)

    def test_says_where_a_mistake_is(self):
        call = self.caller(self.start_target())
        request = r1_request()
        request.call[0].add[1].mul[1].ClearField("number")
        details = self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT, call, request)
        self.assertIn("call[0].add[1].mul[1]: nothing is set", details)

    def test_reads_and_writes_gzip(self):
        request = target_pb2.CallRequest()
        request.call.add().text = "x" * 20_000
        for arguments in ((), ("--compress",)):
            target = self.start_target(*arguments, label=f"target{len(arguments)}")
            for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
                call = self.caller(target, compression=compression)
                reply, done = call.with_call(request, timeout=support.TIMEOUT)
                self.assertEqual(reply.result[0].text, "x" * 20_000)

    def test_answers_health_checks_on_the_flood_port(self):
        target = self.start_target()
        check = self.connect(target.address).unary_unary("/grpc.health.v1.Health/Check")
        self.assertEqual(check(b"", timeout=support.TIMEOUT), b"\x08\x01")  # SERVING

    def test_lists_its_services_by_reflection(self):
        target = self.start_target()
        info = self.connect(target.address).stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        reply = b"".join(info(iter([b"\x3a\x00"]), timeout=support.TIMEOUT))  # list_services
        self.assertIn(b"spate.target.v1.Calls", reply)


class Statistics(TargetTest):
    def test_counts_per_agent_and_incarnation(self):
        target = self.start_target()
        call = self.caller(target)
        for agent, incarnation, count in (("a", 1, 5), ("a", 2, 3), ("b", 1, 2)):
            metadata = (("spate-run", "run-1"), ("spate-agent", agent), ("spate-incarnation", str(incarnation)))
            for _ in range(count):
                call(r1_request(), metadata=metadata, timeout=support.TIMEOUT)
        call(r1_request(), metadata=(("spate-run", "run-2"), ("spate-agent", "a")), timeout=support.TIMEOUT)
        call(r1_request(), timeout=support.TIMEOUT)
        stats = self.stats(target, "run-1")
        self.assertEqual([(a.run, a.agent, a.incarnation, a.received, a.completed, a.refused) for a in stats.agents],
                         [("run-1", "a", 1, 5, 5, 0), ("run-1", "a", 2, 3, 3, 0), ("run-1", "b", 1, 2, 2, 0)])
        self.assertEqual((stats.received, stats.completed, stats.refused), (12, 12, 0))
        self.assertEqual(len(self.stats(target).agents), 0)

    def test_tells_what_the_process_costs(self):
        target = self.start_target("--threads", "3")
        calls = [self.caller(target) for _ in range(4)]
        for call in calls:
            call(r1_request(), timeout=support.TIMEOUT)
        stats = self.stats(target)
        with open(f"/proc/{target.pid}/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[0])
        self.assertAlmostEqual(stats.address_space_bytes, pages * os.sysconf("SC_PAGE_SIZE"), delta=256 << 20)
        self.assertGreater(stats.rss_bytes, 1 << 20)
        self.assertGreater(stats.cpu_ns, 0)
        self.assertGreater(stats.uptime_ns, 0)
        self.assertIn(stats.threads, (1, 2, 3))
        self.assertEqual(stats.open_connections, 4)
        self.assertEqual(stats.allocator, "glibc")
        self.assertRegex(stats.boot_id, "^[0-9a-f]{32}$")
        self.assertRegex(stats.version, r"^\d+\.\d+\.\d+$")

    def test_has_a_new_boot_id_after_a_restart(self):
        first = self.start_target(label="first")
        second = self.start_target(label="second")
        self.assertNotEqual(self.stats(first).boot_id, self.stats(second).boot_id)

    @unittest.skipIf(os.environ.get("SPATE_SANITIZE") == "ON", "AddressSanitizer brings its own allocator")
    def test_names_the_allocator_that_is_loaded(self):
        library = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
        if not os.path.exists(library):
            self.skipTest("libjemalloc2 is not installed")
        target = self.start_target(env={"LD_PRELOAD": library})
        self.assertEqual(self.stats(target).allocator, "jemalloc")

    def test_counts_what_a_full_queue_refuses(self):
        target = self.start_target("--threads", "1", "--queue", "1")
        call = self.caller(target)
        metadata = (("spate-run", "run"), ("spate-agent", "a"), ("spate-incarnation", "7"))
        futures = []
        while len(futures) < 20_000 and not any(f.done() and f.exception() for f in futures):
            # One read of the server's brings many requests, faster than one thread answers them.
            burst = [call.future(r1_request(), metadata=metadata, timeout=60) for _ in range(500)]
            futures += burst
            for future in burst:
                future.exception()
        codes = [f.code() for f in futures]
        completed, refused = codes.count(grpc.StatusCode.OK), codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertEqual(completed + refused, len(futures), set(codes))
        self.assertGreater(refused, 0)
        self.assertGreater(completed, 0)
        self.assertIn("queue is full", next(f.details() for f in futures if f.code() != grpc.StatusCode.OK))
        stats = self.stats(target, "run")
        self.assertEqual((stats.received, stats.completed, stats.refused), (len(futures), completed, refused))
        agent = stats.agents[0]
        self.assertEqual((agent.received, agent.completed, agent.refused), (len(futures), completed, refused))

    def test_balances_at_every_instant(self):
        target = self.start_target()
        stop = threading.Event()
        call = self.caller(target)

        def flood():
            while not stop.is_set():
                futures = [call.future(r1_request(), timeout=60) for _ in range(50)]
                for future in futures:
                    future.result()
        thread = threading.Thread(target=flood)
        thread.start()
        try:
            for _ in range(200):
                stats = self.stats(target)
                self.assertGreaterEqual(stats.received, stats.completed + stats.refused)
                self.assertLessEqual(stats.received - stats.completed - stats.refused, 50)
        finally:
            stop.set()
            thread.join()
        stats = self.stats(target)
        self.assertGreater(stats.received, 0)
        self.assertEqual(stats.received, stats.completed)


class Log(TargetTest):
    HEADER = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d; Time \(sec\); Memory \(MB\); Requests; Avg req/sec; Curr req/sec$"

    def test_has_a_row_for_every_n_requests_and_the_total(self):
        target = self.start_target("--log", self.path("log.csv"), "--log-every", "10")
        call = self.caller(target)
        for future in [call.future(r1_request(), timeout=60) for _ in range(57)]:
            future.result()
        self.assertEqual(target.stop(), 0)
        with open(self.path("log.csv"), encoding="ascii") as log:
            lines = log.read().splitlines()
        self.assertRegex(lines[0], self.HEADER)
        rows = [line.split("; ") for line in lines[1:]]
        self.assertEqual([int(row[3]) for row in rows], [10, 20, 30, 40, 50, 57])
        for row in rows:
            self.assertRegex(row[2], r"^\d+(,\d{1,3})?$")
        self.assertIn("received 57, completed 57, refused 0", target.stderr)

    def test_uses_the_decimal_character_asked_for(self):
        target = self.start_target("--log", self.path("log.csv"), "--decimal", "point")
        self.caller(target)(r1_request(), timeout=support.TIMEOUT)
        target.signal(signal.SIGINT)
        self.assertEqual(target.wait(), 0)
        with open(self.path("log.csv"), encoding="ascii") as log:
            rows = log.read().splitlines()[1:]
        self.assertEqual(len(rows), 1)
        self.assertNotIn(",", rows[0])
        self.assertEqual(rows[0].split("; ")[3], "1")


class TwoPorts(TargetTest):
    """One with TLS, one without, one service."""

    def pki(self, *arguments):
        subprocess.run([support.program("spate"), "pki", *arguments, "--dir", self.path("pki")], check=True,
                       capture_output=True, timeout=support.TIMEOUT)

    def credentials(self, name):
        parts = []
        for file in ("ca.crt", f"{name}.key", f"{name}.crt"):
            with open(self.path("pki", file), "rb") as pem:
                parts.append(pem.read())
        return grpc.ssl_channel_credentials(*parts)

    def test_counts_both_together(self):
        self.pki("init")
        self.pki("issue", "--role", "target", "--name", "server", "--host", "127.0.0.1")
        self.pki("issue", "--role", "agent", "--name", "pc")
        self.pki("issue", "--role", "controller", "--name", "control")
        target = self.start("spate-target", "--listen", "127.0.0.1:0", "--listen-plain", "127.0.0.1:0",
                            "--ca", self.path("pki", "ca.crt"), "--cert", self.path("pki", "target-server.crt"),
                            "--key", self.path("pki", "target-server.key"),
                            ready=r"^spate-target listening on (\S+) stats on (\S+) plain on (\S+)$")
        encrypted, stats, plain = target.ready.groups()
        channels = [self.connect(plain)]
        for name, address in (("agent-pc", encrypted), ("controller-control", stats)):
            channels.append(grpc.secure_channel(address, self.credentials(name),
                                                options=[("grpc.enable_http_proxy", 0)]))
            self.addCleanup(channels[-1].close)
        metadata = (("spate-run", "r"), ("spate-agent", "pc"), ("spate-incarnation", "1"))
        for channel, calls in ((channels[0], 3), (channels[1], 4)):
            call = support.unary(channel, "spate.target.v1.Calls/Call", target_pb2.CallResponse)
            for _ in range(calls):
                self.assertEqual(call(r1_request(), timeout=support.TIMEOUT, metadata=metadata).result[0].number,
                                 15.0)
        get = support.unary(channels[2], "spate.target.v1.Stats/Get", target_pb2.StatsReply)
        reply = get(target_pb2.StatsRequest(run="r"), timeout=support.TIMEOUT)
        self.assertEqual((reply.received, reply.completed), (7, 7))
        self.assertEqual([(a.agent, a.received) for a in reply.agents], [("pc", 7)])
        self.assertEqual(reply.open_connections, 2)


class Refusals(TargetTest):
    def refused(self, *arguments, code=2):
        target = self.start("spate-target", *arguments)
        self.assertEqual(target.wait(), code, target.stderr)
        self.assertEqual(target.stdout, "")
        return target.stderr

    def test_an_address_that_is_not_loopback_needs_tls(self):
        for flag in ("--listen", "--stats"):
            other = "--stats" if flag == "--listen" else "--listen"
            self.assertIn("spate pki", self.refused(flag, "0.0.0.0:0", other, "127.0.0.1:0"))

    def test_the_plain_port_is_loopback_only(self):
        self.assertIn("0.0.0.0:0 without TLS", self.refused("--listen", "127.0.0.1:0", "--listen-plain", "0.0.0.0:0"))
        self.assertIn("--listen-plain", self.refused("--listen-plain", "nonsense"))

    def test_a_log_that_cannot_be_written(self):
        error = self.refused("--listen", "127.0.0.1:0", "--log", self.path("missing", "log.csv"), code=1)
        self.assertIn("missing/log.csv: cannot open for writing", error)

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assertIn(address, self.refused("--listen", address, "--stats", "127.0.0.1:0", code=1))

    def test_a_second_target_on_the_same_port(self):
        first = self.start_target()
        self.assertIn("taken", self.refused("--listen", first.address, "--stats", "127.0.0.1:0", code=1))

    def test_flags_out_of_range(self):
        self.assertIn("64 KiB", self.refused("--listen", "127.0.0.1:0", "--stack-size", "16KiB"))
        self.assertIn("1 to 10000", self.refused("--listen", "127.0.0.1:0", "--threads", "0"))
        self.assertIn("--queue", self.refused("--queue", "many"))
        self.assertIn("--listen", self.refused("--listen", "nonsense"))

    def test_version(self):
        done = subprocess.run([support.program("spate-target"), "--version"], capture_output=True, text=True,
                              check=True)
        self.assertTrue(re.match(r"^spate-target \d+\.\d+\.\d+$", done.stdout.strip()), done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
