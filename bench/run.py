#!/usr/bin/env python3
"""Measures spate-agent against its peers; README.md says how to read what it prints.

Short rounds, interleaved in random order, against one sink that is cheaper than all of them. Each flood is
measured alike: between two instants while it is in full swing, CPU time of the generator's process from
/proc, requests from the sink's own count. Only ratios within a round count.
"""

import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import statistics
import sys
import time

import generators
from generators import BenchError

ROOT = pathlib.Path(__file__).resolve().parent.parent
SETTLE_SECONDS = 0.3  # from the first answers to the measured window
MARGIN_SECONDS = 2    # that a flood lasts longer than its window, for the window to lie inside it
OTHERS_BUSY_MAX = 0.05  # of the generators' core, before the results are doubted

# The bars: what, at most, and how it is found.
CPU_OF_H2LOAD_MAX = 0.75
CPU_BAR_CONNECTIONS = (300, 1000)
KB_PER_CONNECTION_MAX = 20
SYSTEM_CALLS_MAX = 2.1


# --- one flood ----------------------------------------------------------------------------------------

def cpu_us(pid):
    """User + system time of a process, all threads, in steps of a clock tick (10 ms)."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000 / os.sysconf("SC_CLK_TCK")


def rss_kb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def core_us(core):
    """Time that a core was not idle, whoever used it."""
    line = re.search(rf"^cpu{core} (.*)$", pathlib.Path("/proc/stat").read_text(), re.MULTILINE)[1]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, line.split())
    return (user + nice + system + irq + softirq) * 1_000_000 / os.sysconf("SC_CLK_TCK")


def wait_until_flooding(sink, generator, before, connections):
    deadline = time.monotonic() + generators.START_SECONDS
    while time.monotonic() < deadline:
        counts = sink.counts()
        if (counts["connections"] >= connections
                and counts["answered"] >= before["answered"] + connections):
            return
        if generator.child.process.poll() is not None:
            generator.child.fail("ended before all its connections had an answer")
        time.sleep(0.02)
    generator.child.fail(f"had not {connections} connections with answers within "
                         f"{generators.START_SECONDS} s ({counts})")


def check_count(generator, own, sink_says, connections):
    """The generator's own count against the sink's. A peer may cut off what is in flight at its end."""
    cut_off = 0 if generator.name == "spate-agent" else connections
    if not own <= sink_says <= own + cut_off:
        raise BenchError(f"{generator.name} counted {own} answers, the sink gave {sink_says}")


def wait_until_empty(sink):
    """A sink still busy with the last one's connections would disturb the next one."""
    deadline = time.monotonic() + 10
    while sink.counts()["connections"] > 0 and time.monotonic() < deadline:
        time.sleep(0.02)


def flood(sink, generator, connections, seconds):
    """One generator, one window: what is measured in it."""
    wait_until_empty(sink)
    before = sink.counts()
    generator.begin(sink.port, connections, seconds + MARGIN_SECONDS)
    wait_until_flooding(sink, generator, before, connections)
    time.sleep(SETTLE_SECONDS)
    pid, sink_pid, core = generator.child.pid, sink.child.pid, generator.place.generator_core
    stamp = lambda: (time.monotonic(), sink.counts()["answered"], cpu_us(pid), cpu_us(sink_pid),
                     core_us(core))
    begin = stamp()
    time.sleep(seconds)
    if generator.child.process.poll() is not None:
        generator.child.fail("ended before its measured window did")
    end = stamp()
    rss = rss_kb(pid)
    own = generator.end()
    check_count(generator, own, sink.counts()["answered"] - before["answered"], connections)
    elapsed, requests, cpu, sink_cpu, busy = (b - a for a, b in zip(begin, end))
    if requests == 0:
        raise BenchError(f"{generator.name}: no request was answered in the measured window")
    return {"generator": generator.name, "connections": connections, "requests": requests,
            "rate_per_s": requests / elapsed, "cpu_us": cpu / requests, "busy": cpu / elapsed / 1e6,
            "sink_busy": sink_cpu / elapsed / 1e6, "rss_kb": rss,
            "others_busy": max(0, busy - cpu) / elapsed / 1e6}


# --- counted exactly: two floods of different length under a tracer, and the difference -----------------

def traced_flood(sink, generator, connections, seconds, prefix):
    wait_until_empty(sink)
    before = sink.counts()["answered"]
    generator.begin(sink.port, connections, seconds, prefix)
    generator.end()
    return sink.counts()["answered"] - before


def instructions_per_request(place, sink, generator, connections, lengths):
    totals = []
    for seconds in lengths:
        log = place.log(generator.name)
        log.write_text("")
        requests = traced_flood(sink, generator, connections, seconds,
                                [shutil.which("valgrind"), "--tool=callgrind",
                                 "--callgrind-out-file=/dev/null"])
        collected = re.findall(r"Collected : (\d+)", log.read_text(errors="replace"))
        if not collected:
            raise BenchError(f"valgrind printed no instruction count for {generator.name}")
        totals.append((requests, int(collected[-1])))
    (r1, i1), (r2, i2) = totals
    return {"generator": generator.name, "connections": connections, "requests": r2 - r1,
            "instructions": (i2 - i1) / (r2 - r1)}


def system_calls_per_request(place, sink, generator, connections, lengths):
    totals = []
    for seconds in lengths:
        table = place.scratch / "strace"
        requests = traced_flood(sink, generator, connections, seconds,
                                [shutil.which("strace"), "-f", "-c", "-U", "name,calls", "-o", str(table)])
        calls = {name: int(count) for name, count in
                 re.findall(r"^\s*(\w+)\s+(\d+)\s*$", table.read_text(), re.MULTILINE)}
        calls.pop("total", None)
        totals.append((requests, calls))
    (r1, c1), (r2, c2) = totals
    each = {name: (c2[name] - c1.get(name, 0)) / (r2 - r1) for name in c2}
    return {"generator": generator.name, "connections": connections, "requests": r2 - r1,
            "total": sum(each.values()),
            "calls": {name: value for name, value in sorted(each.items(), key=lambda x: -x[1])
                      if value >= 0.005}}


# --- tables -------------------------------------------------------------------------------------------

def table(title, header, rows):
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    print(f"\n{title}\n")
    for row in [header, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
                                for i, (cell, width) in enumerate(zip(row, widths))) + " |")


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


class Rounds:
    """The results of all rounds, and what is derived from them."""

    def __init__(self, results):
        self.results = results
        self.by_cell = {(r["round"], r["connections"], r["generator"]): r for r in results}

    def values(self, generator, connections, what):
        return [r[what] for r in self.results
                if (r["generator"], r["connections"]) == (generator, connections)]

    def ratios(self, generator, base, connections):
        """CPU per request relative to `base`, of the rounds that have both."""
        pairs = ((r, self.by_cell.get((r["round"], connections, base))) for r in self.results
                 if (r["generator"], r["connections"]) == (generator, connections))
        return [mine["cpu_us"] / other["cpu_us"] for mine, other in pairs if other]

    def kb_per_connection(self, generator, few, many):
        """Per round, so that what all rounds share (libraries, buffers, control plane) cancels."""
        if few == many:
            return []
        pairs = ((r, self.by_cell.get((r["round"], many, generator))) for r in self.results
                 if (r["generator"], r["connections"]) == (generator, few))
        return [(more["rss_kb"] - less["rss_kb"]) / (many - few) for less, more in pairs if more]


def print_rounds(rounds, names, connections):
    rows = []
    for count in connections:
        for name in names:
            if not (cpu := rounds.values(name, count, "cpu_us")):
                continue
            cell = lambda what: statistics.median(rounds.values(name, count, what))
            ratio = lambda base: (f"{statistics.median(r):.2f}"
                                  if (r := rounds.ratios(name, base, count)) else "-")
            rows.append([name, count, spread(cpu), ratio("floor"), ratio("h2load"),
                         f"{cell('rate_per_s'):,.0f}", f"{cell('busy'):.0%}", f"{cell('sink_busy'):.0%}"])
    table("CPU per request: median (min-max) of the rounds; ratios are medians of per-round ratios",
          ["generator", "connections", "CPU-us/request", "x floor", "x h2load", "requests/s",
           "generator core", "sink core"], rows)


def warn_if_disturbed(results):
    others = statistics.median(r["others_busy"] for r in results)
    if others > OTHERS_BUSY_MAX:
        print(f"\nWARNING: other processes had {others:.0%} of the generators' core. They spoil its caches, "
              "which spoils the ratios too: repeat this on a quiet machine.")


def print_memory(rounds, names, few, many):
    rows = []
    for name in names:
        if each := rounds.kb_per_connection(name, few, many):
            rows.append([name, spread(each, 1),
                         f"{statistics.median(rounds.values(name, many, 'rss_kb')) / 1024:.1f}"])
    table(f"Memory while flooding: growth of the resident set from {few} to {many} connections",
          ["generator", "KB/connection", f"MB at {many}"], rows)


def print_counted(instructions, calls):
    if instructions:
        table("User instructions per request (callgrind, difference of two runs)",
              ["generator", "connections", "instructions/request"],
              [[r["generator"], r["connections"], f"{r['instructions']:,.0f}"] for r in instructions])
    if calls:
        table("System calls per request (strace, difference of two runs)",
              ["generator", "connections", "calls/request", "which"],
              [[r["generator"], r["connections"], f"{r['total']:.2f}",
                ", ".join(f"{name} {value:.2f}" for name, value in r["calls"].items())] for r in calls])


# --- bars ---------------------------------------------------------------------------------------------

def bars(rounds, connections, calls):
    """(text, measured or None, at most) of each."""
    found = []
    for count in CPU_BAR_CONNECTIONS:
        ratios = rounds.ratios("spate-agent", "h2load", count)
        found.append((f"CPU per request of h2load's, {count} connections",
                      statistics.median(ratios) if ratios else None, CPU_OF_H2LOAD_MAX))
    growth = rounds.kb_per_connection("spate-agent", min(connections), max(connections))
    found.append(("KB per connection", statistics.median(growth) if growth else None,
                  KB_PER_CONNECTION_MAX))
    mine = [r["total"] for r in calls if r["generator"] == "spate-agent"]
    found.append(("system calls per request", mine[0] if mine else None, SYSTEM_CALLS_MAX))
    return found


def print_bars(found):
    print("\nBars for spate-agent\n")
    for text, value, most in found:
        state = "NOT MEASURED" if value is None else "met" if value <= most else "MISSED"
        print(f"  {state:12}  {text}: {'-' if value is None else f'{value:.2f}'} (at most {most})")
    if any(value is None for _, value, _ in found):
        return 1
    return 0 if all(value <= most for _, value, most in found) else 99


# --- the whole ----------------------------------------------------------------------------------------

def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--seconds", type=int, help="length of a measured window; default 2")
    parser.add_argument("--connections", default="100,300,1000", help="default %(default)s")
    parser.add_argument("--generators", default="floor,spate-agent,h2load,grpc++", help="default: all")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s, shorter counted runs")
    parser.add_argument("--no-counts", action="store_true", help="neither valgrind nor strace")
    parser.add_argument("--seed", type=int, help="of the order of the rounds; default: drawn, printed")
    parser.add_argument("--json", metavar="FILE", help="keep the raw results here")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="default: build/")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (1 if options.quick else 2)
    options.seed = options.seed if options.seed is not None else random.randrange(1_000_000)
    options.connections = sorted({int(n) for n in options.connections.split(",")})
    if min(options.connections) < 1 or options.rounds < 1 or options.seconds < 1:
        parser.error("rounds, seconds and connections must be positive")
    return options


def find_generators(place, wanted):
    known = {kind.name: kind for kind in (generators.Floor, generators.SpateAgent, generators.H2load,
                                          generators.GrpcLibrary)}
    present = []
    for name in wanted.split(","):
        if name not in known:
            raise BenchError(f"no generator {name!r}; there are {', '.join(known)}")
        generator = known[name](place)
        if reason := generator.missing():
            print(f"SKIPPED {name}: {reason}")
        else:
            present.append(generator)
    return present


def run_rounds(options, sink, present):
    order = random.Random(options.seed)
    results = []
    for number in range(options.rounds):
        for count in options.connections:
            for generator in order.sample(present, len(present)):
                result = flood(sink, generator, count, options.seconds)
                results.append({"round": number, **result})
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    return results


def run_counts(options, place, sink, present):
    instructions, calls = [], []
    count = options.connections[len(options.connections) // 2]
    lengths = (1, 3) if options.quick else (2, 6)
    for program, what, collect in (("valgrind", instructions_per_request, instructions),
                                   ("strace", system_calls_per_request, calls)):
        if options.no_counts or not shutil.which(program):
            print(f"SKIPPED {what.__name__.replace('_', ' ')}: " +
                  ("--no-counts" if options.no_counts else f"{program} is not installed"))
            continue
        for generator in present:
            collect.append(what(place, sink, generator, count, lengths))
            print(f"{program} on {generator.name} done", file=sys.stderr)
    return instructions, calls


def describe_machine():
    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1])
    return (f"{os.cpu_count()} CPUs ({model[1] if model else os.uname().machine}), "
            f"{memory / 1048576:.0f} GiB, Linux {os.uname().release}")


def measure(options, place):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("WARNING: one core only; generator and sink disturb each other, even ratios are doubtful")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{describe_machine()}; sink on core {place.sink_core}, generators on core "
          f"{place.generator_core}; {options.rounds} rounds x {options.seconds} s, seed {options.seed}")
    present = find_generators(place, options.generators)
    sink = generators.Sink(place)
    results = run_rounds(options, sink, present)
    instructions, calls = run_counts(options, place, sink, present)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"machine": describe_machine(), "seed": options.seed, "rounds": results,
             "instructions": instructions, "system_calls": calls}, indent=1) + "\n")
    rounds = Rounds(results)
    names = [generator.name for generator in present]
    print_rounds(rounds, names, options.connections)
    warn_if_disturbed(results)
    if len(options.connections) > 1:
        print_memory(rounds, names, options.connections[0], options.connections[-1])
    else:
        print("\nSKIPPED memory per connection: it takes two numbers of connections")
    print_counted(instructions, calls)
    return print_bars(bars(rounds, options.connections, calls))


def main():
    options = arguments()
    cores = sorted(os.sched_getaffinity(0))
    place = generators.Place(programs=options.build / "bin", peers=options.build / "bench" / "bin",
                             sink_core=cores[0], generator_core=cores[min(1, len(cores) - 1)])
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        return measure(options, place)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 105
    finally:
        generators.stop_all()
        place.remove()


if __name__ == "__main__":
    sys.exit(main())
