#!/usr/bin/env python3
"""The rules of this house that a compiler does not check. Standard library only.

    .ci/tidy.py [ROOT]     prints one line per breach, file:line first; exit 1 if there are any
    .ci/tidy.py --self-test

Which folder may include which, what stays out of headers, calls that have a better way here, files
that no build and nobody includes. Each rule says what to do instead.
"""

import pathlib
import re
import sys
import tempfile

# Dependencies point one way: programs meet in proto, rpc and common, never in one another.
MAY_INCLUDE = {
    "common": {"common"},
    "proto": {"proto", "common"},
    "rpc": {"rpc", "common"},
    "service": {"service", "common"},
    "agent": {"agent", "common", "proto", "rpc", "service"},
    "controller": {"controller", "common", "proto", "rpc", "service"},
    "target-server": {"target-server", "common", "proto", "rpc", "service"},
    "cli": {"cli", "common", "proto", "rpc"},
}
FOLDERS = [*MAY_INCLUDE, "tests", "bench"]

# What a header must not drag into everybody who includes it. Forward declarations and pimpl do.
HEAVY = [
    (re.compile(r"<nlohmann/(?!json_fwd)"), "nlohmann/json"),
    (re.compile(r"<grpc"), "gRPC"),
    (re.compile(r"\.pb\.h"), "generated code"),
]
# rpc/ is about gRPC; a service derives from a generated class and cannot hide it.
HEAVY_ALLOWED = re.compile(r"^rpc/|_service\.h$")

BANNED = [
    ("system_clock", re.compile(r"\bsystem_clock\b"),
     "time inside is monotonic: take `now` as an argument, or wall_clock_ms() for a label"),
    ("sleep", re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|(?<![\w.>:])sleep\("),
     "a timer on the loop, or wait for the event itself with a deadline"),
    ("rand", re.compile(r"(?<![\w.>])(std::)?s?rand\("), "common/random.h, seeded"),
    ("mutex", re.compile(r"std::(recursive_|shared_|timed_)?mutex\b"),
     "one thread, one loop: post a message to the owner"),
    ("volatile", re.compile(r"\bvolatile\b(?! *(std::)?sig_atomic_t)"), "std::atomic, or nothing"),
    ("marker", re.compile(r"\b(FIXME|XXX)\b"), "do it now, or open an issue"),
]
# file -> {rule: why it is right there}
GRPC_DEADLINE = {"system_clock": "gRPC wants its deadlines so"}
MANY_THREADS = "a target with a thread pool has many threads at one thing; not on the agent's path"
ALLOWED = {
    "controller/controller.cc": GRPC_DEADLINE,
    "controller/target_sampler.cc": GRPC_DEADLINE,
    "target-server/counters.h": {"mutex": MANY_THREADS},
    "target-server/memory_log.h": {"mutex": MANY_THREADS},
    "target-server/pool.h": {"mutex": MANY_THREADS},
    "target-server/target.cc": GRPC_DEADLINE,
}


def strip_comments(text):
    """Comments and string literals replaced by blanks, lines kept."""
    def blank(match):
        found = match.group(0)
        if found.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, blank, text, flags=re.S)


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cc", ".h") and "node_modules" not in path.parts:
                yield path.relative_to(root).as_posix()


def includes(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+(["<][^">]+[">])', line)
        if match:
            yield number, match.group(1)


def check_includes(name, text):
    folder = name.split("/")[0]
    for number, include in includes(text):
        if include.startswith('"'):
            other = include[1:-1].split("/")[0]
            if "/" not in include:
                yield number, f"include {include} is not rooted at the repository"
            elif folder in MAY_INCLUDE and other in FOLDERS and other not in MAY_INCLUDE[folder]:
                allowed = ", ".join(sorted(MAY_INCLUDE[folder]))
                yield number, f"{folder}/ may include only {allowed}, not {include}"
        if folder == "common" and re.match(r"<(boost/(asio|beast)|grpc|google/protobuf)", include):
            yield number, f"common/ knows no sockets and no wire: {include} belongs in an adapter"
        if folder in MAY_INCLUDE and name.endswith(".h") and not HEAVY_ALLOWED.search(name):
            for pattern, what in HEAVY:
                if pattern.search(include):
                    yield number, f"{what} stays out of headers (forward declaration, pimpl): {include}"


def check_banned(name, text):
    # gRPC's own API wants system_clock deadlines, and a test's fake server may lock: no harm there.
    product = name.split("/")[0] in MAY_INCLUDE
    for number, line in enumerate(strip_comments(text).splitlines(), 1):
        for rule, pattern, instead in BANNED:
            if rule in ("system_clock", "mutex") and not product:
                continue
            if pattern.search(line) and rule not in ALLOWED.get(name, {}):
                yield number, f"{rule} is not used here; instead: {instead}"


def check_pragma(name, text):
    first = next((line for line in text.splitlines() if line.strip()), "")
    if name.endswith(".h") and first != "#pragma once":
        yield 1, "a header starts with #pragma once"


def is_listed(root, name):
    """Whether a CMakeLists.txt in the file's folder or above names it."""
    path = root / name
    for folder in path.parents:
        lists = folder / "CMakeLists.txt"
        if lists.is_file():
            relative = re.escape(path.relative_to(folder).as_posix())
            if re.search(rf"(?<![\w/.-]){relative}(?![\w.-])", lists.read_text()):
                return True
        if folder == root:
            return False
    return False


def breaches(root):
    texts = {name: (root / name).read_text() for name in sources(root)}
    included = {include[1:-1] for text in texts.values() for _, include in includes(text)}
    for name, text in texts.items():
        for check in (check_includes, check_banned, check_pragma):
            for number, what in check(name, text):
                yield f"{name}:{number}: {what}"
        if name.endswith(".cc") and not is_listed(root, name):
            yield f"{name}:1: no CMakeLists.txt builds this file"
        if name.endswith(".h") and name not in included:
            yield f"{name}:1: nobody includes this header"
    for name, rules in ALLOWED.items():
        text = strip_comments(texts.get(name, ""))
        for rule in rules:
            pattern = next(pattern for known, pattern, _ in BANNED if known == rule)
            if not pattern.search(text):
                yield f".ci/tidy.py:1: {name} no longer needs its exception for {rule}"


def self_test():
    cases = {  # file -> (text, what its breach must say; None: clean)
        "common/a.h": ("#pragma once\n#include <boost/asio.hpp>\n", "knows no sockets"),
        "common/b.h": ("#include <string>\n", "#pragma once"),
        "common/c.h": ("#pragma once\n#include <nlohmann/json.hpp>\n", "stays out of headers"),
        "agent/d.cc": ('#include "cli/x.h"\n', "may include only"),
        "agent/e.cc": ("std::mutex m;\n", "mutex"),
        "agent/f.cc": ("// std::mutex, system_clock\nauto s = \"rand(\"; operand(1);\n", None),
        "agent/g.cc": ("int x = rand();\n", "rand"),
        "agent/unlisted.cc": ("", "no CMakeLists.txt"),
        "agent/lonely.h": ("#pragma once\n", "nobody includes"),
        "rpc/h.h": ("#pragma once\n#include <grpcpp/grpcpp.h>\n", None),
    }
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, (text, _) in cases.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(text)
        (root / "agent/CMakeLists.txt").write_text("d.cc e.cc f.cc g.cc i.cc")
        (root / "agent/i.cc").write_text("".join(
            f'#include "{path}"\n' for path in cases if path.endswith(".h") and "lonely" not in path))
        global ALLOWED
        ALLOWED = {}
        found = list(breaches(root))
    for path, (_, expected) in cases.items():
        mine = [line for line in found if line.startswith(path + ":")]
        good = not mine if expected is None else len(mine) == 1 and expected in mine[0]
        if not good:
            sys.exit(f"lint self-test: {path}: expected {expected!r}, found {mine}")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    found = list(breaches(root))
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
