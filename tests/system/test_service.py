"""What a service manager sees of the programs: readiness, signs of life, the end; and that the units fit."""

import os
import re
import shutil
import signal
import socket
import subprocess
import unittest

import cluster
import support

UNITS = os.path.join(support.REPOSITORY, "deploy", "systemd")
MOST_EXPOSED = 1.5  # of systemd-analyze's 10


class Manager:
    """The socket of a service manager."""

    def __init__(self, path):
        self.path = path
        self.said = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.settimeout(0.01)

    def heard(self):
        try:
            while True:
                self.said += self._socket.recv(4096).decode().split("\n")
        except TimeoutError:
            return self.said

    def forget(self):
        self.heard()
        self.said = []

    def environment(self):
        return {"NOTIFY_SOCKET": self.path, "WATCHDOG_USEC": "200000"}

    def close(self):
        self._socket.close()


class ServiceTest(cluster.ClusterTest):
    def manager(self, name):
        manager = Manager(self.path(name + ".notify"))
        self.addCleanup(manager.close)
        return manager

    def assert_watched(self, manager, process, ready):
        """Ready, alive; silent while it stands still, alive again after that; says that it stops."""
        support.eventually(lambda: "READY=1" in manager.heard(), "readiness")
        self.assertTrue(any(re.match(ready, line) for line in manager.said), manager.said)
        manager.forget()
        support.eventually(lambda: manager.heard().count("WATCHDOG=1") >= 3, "signs of life")
        process.signal(signal.SIGSTOP)
        manager.forget()
        with self.assertRaises(AssertionError):
            support.eventually(lambda: "WATCHDOG=1" in manager.heard(), "a sign of life", timeout=1.0)
        process.signal(signal.SIGCONT)
        support.eventually(lambda: "WATCHDOG=1" in manager.heard(), "a sign of life")
        self.assertEqual(process.stop(), 0)
        self.assertIn("STOPPING=1", manager.heard())

    def test_the_controller_and_the_agent(self):
        of_controller, of_agent = self.manager("controller"), self.manager("agent")
        controller = self.start("spate-controller", "--listen", "127.0.0.1:0", "--store", self.path("store.sqlite"),
                                env=of_controller.environment(), ready=r"^spate-controller listening on (\S+)$")
        controller.address = controller.ready.group(1)
        agent = self.start_agent(controller, "pc-01", env=of_agent.environment())
        self.assert_watched(of_agent, agent, r"STATUS=dialling 127\.0\.0\.1:\d+")
        self.assert_watched(of_controller, controller, r"STATUS=listening on 127\.0\.0\.1:\d+")

    def test_a_log_file_takes_the_place_of_stderr(self):
        log = self.path("controller.log")
        controller = self.start_controller("--log-file", log)
        support.eventually(lambda: os.path.exists(log), "the log")
        controller.stop()
        self.assertEqual(controller.stderr, "")
        with open(log, encoding="utf-8") as f:
            self.assertIn(" info controller ", f.read())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze here")
    def test_the_units_are_valid_and_shut_off(self):
        for unit in ("spate-controller.service", "spate-agent.service"):
            with open(os.path.join(UNITS, unit), encoding="utf-8") as f:
                text = f.read()
            # The programs need not be installed where this is tested.
            here = self.path(unit)
            with open(here, "w", encoding="utf-8") as f:
                f.write(re.sub(r"ExecStart=/usr/bin/", f"ExecStart={support.BIN}/", text))
            verified = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True)
            ours = [line for line in verified.stderr.splitlines() if unit in line]
            self.assertEqual(ours, [], verified.stderr)
            scored = subprocess.run(["systemd-analyze", "security", "--offline=true", here], capture_output=True,
                                    text=True)
            score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", scored.stdout)
            self.assertIsNotNone(score, scored.stdout + scored.stderr)
            self.assertLessEqual(float(score.group(1)), MOST_EXPOSED, scored.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
