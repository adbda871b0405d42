"""A whole cluster of real processes on loopback: controller, agents, target, and the client to drive them."""

import json

import support

TARGET_READY = r"^spate-target listening on (\S+) stats on (\S+)$"

# The nested call of the allocator flood: add(add(r, r), mul(r, r)).
DRAW = "{{random 0 999999}}"
NESTED_CALL = {"method": "spate.target.v1.Calls/Call", "timeout": "5s",
               "message": {"call": {"add": [{"add": [DRAW, DRAW]}, {"mul": [DRAW, DRAW]}]}}}


def plan(url, *, probe="", name="test", call=None, connections=40, agents=2, threads=1, phases=None, **more):
    """A plan as a dict; flood of 2 s unless `phases` says otherwise."""
    target = {"url": url, "probe": probe} if probe else {"url": url}
    return {"name": name, "target": target, "call": call or NESTED_CALL,
            "load": {"model": "closed", "connections": connections},
            "agents": {"count": agents, "threads": threads}, "interval": "250ms",
            "phases": phases or [{"name": "flood", "for": "2s"}], **more}


class ClusterTest(support.SystemTest):
    """Starts what a test asks for; everything ends with the test."""

    def start_controller(self, *arguments, listen="127.0.0.1:0", label=None):
        controller = self.start("spate-controller", "--listen", listen, "--store", self.path("store.sqlite"),
                                *arguments, label=label, ready=r"^spate-controller listening on (\S+)$")
        controller.address = controller.ready.group(1)
        return controller

    def start_agent(self, controller, name, *arguments, **options):
        return self.start("spate-agent", "--controller", controller.address, "--name", name,
                          "--state", self.path("state-" + name), *arguments, label=name,
                          ready=r"^spate-agent \S+ connected to \S+$", **options)

    def start_agents(self, controller, count):
        return [self.start_agent(controller, f"pc-{i + 1:02d}") for i in range(count)]

    def start_target(self, *arguments, listen="127.0.0.1:0", label=None):
        target = self.start("spate-target", "--listen", listen, *arguments, label=label, ready=TARGET_READY)
        target.address, target.stats_address = target.ready.groups()
        target.url = f"grpc://{target.address}"
        return target

    def write_plan(self, content, file="plan.jsonc"):
        path = self.path(file)
        with open(path, "w", encoding="utf-8") as f:
            f.write(content if isinstance(content, str) else json.dumps(content, indent=2))
        return path

    def start_run(self, controller, plan_path, *arguments, label="run", **options):
        """`spate run`, not waited for."""
        return self.start("spate", "run", plan_path, "--controller", controller.address, "-o", "json",
                          "--report", self.path(label + ".html"), *arguments, label=label, **options)

    def finish(self, run, expected_exit=0, timeout=60):
        """The summary object of a run that was started with start_run."""
        code = run.wait(timeout)
        self.assertEqual(code, expected_exit, run.tail(60))
        return json.loads(run.stdout)

    def run_plan(self, controller, content, *arguments, expected_exit=0, label="run", timeout=60):
        path = self.write_plan(content, label + ".jsonc")
        return self.finish(self.start_run(controller, path, *arguments, label=label), expected_exit, timeout)

    def client(self, *arguments, expected_exit=0, label="client", timeout=60):
        """Any verb of `spate`, waited for; its process, for its output."""
        process = self.start("spate", *arguments, label=label)
        self.assertEqual(process.wait(timeout), expected_exit, process.stdout + process.tail(60))
        return process

    def assert_adds_up(self, summary):
        """What must hold for every run that was drained."""
        requests = summary["requests"]
        outcomes = requests["ok"] + requests["failed"] + requests["timed_out"] + requests["cancelled"]
        self.assertEqual(requests["sent"], outcomes, summary)
        self.assertEqual(requests["scheduled"], requests["sent"] + requests["missed"], summary)

    def assert_clean(self, summary):
        """What must hold if nothing went wrong."""
        self.assert_adds_up(summary)
        self.assertEqual(summary["verdict"], "VALID", summary)
        self.assertGreater(summary["requests"]["ok"], 0, summary)
        self.assertEqual(summary["requests"]["ok"], summary["requests"]["sent"], summary)
        self.assertEqual(summary["records"]["gaps"], 0, summary)
        self.assertEqual(summary["records"]["duplicates"], 0, summary)
        self.assertEqual(summary["balance"], "BALANCED", summary)
        connections = summary["connections"]
        self.assertEqual(connections["established"], connections["requested"], summary)
