"""Runs the test suite that the Python client riak 2.7.0 brings along against a running server.

Usage: run.py --pb-port N --http-port N [--protocol pbc|http ...] [--lacks X ...] [--only REGEX]
              [--verbose]

Each protocol is a pass over the whole suite, in a process of its own, since the suite reads its
settings when it is imported. The lists in `waiting/`, one file for each feature that the server does not
have yet, decide the expected outcome of a test:

- a test that is on no list has to pass: a failure fails the run, and so does a skip;
- a test on a list is run too and has to fail or skip: when it passes, it has to come off the list;
- the tests in `waiting/harness.txt` fail or hang with every server and are not run;
- the tests in `lacking/X.txt` count as waiting on a server that lacks X for good (`--lacks X`),
  as bitcask lacks indexes.

So the lists can only shrink. A line is `module.Class.test`, or `pbc:` or `http:` before it where
only one protocol is concerned. Nothing of the installed package is changed but for one file that
a test stores and that the package does not bring.

Behind a whole suite, on a server that has indexes, the example of docs/clients.md is run.
"""
import argparse
import collections
import glob
import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

MODULES = [
    "test_2i", "test_btypes", "test_client", "test_comparison", "test_datatypes", "test_datetime",
    "test_feature_detection", "test_filters", "test_kv", "test_mapreduce", "test_misc",
    "test_pool", "test_search", "test_security", "test_server_test", "test_timeseries_pbuf",
    "test_timeseries_ttb", "test_util", "test_yokozuna",
]

# Parts that the suite runs only on request. Security is not among them: it changes how every other
# test connects.
SWITCHES = [
    "RUN_BTYPES", "RUN_CLIENT", "RUN_DATATYPES", "RUN_INDEXES", "RUN_KV", "RUN_MAPREDUCE",
    "RUN_POOL", "RUN_RESOLVE",
]

SECONDS_PER_TEST = 60
# Many of these hang, since the client waits for an answer that does not come.
SECONDS_PER_WAITING_TEST = 3

HARNESS = "harness"


class TestTimeout(Exception):
    """A test took too long."""


class Outcomes(unittest.TestResult):
    """The first outcome of each test; a later error of its clean-up adds nothing."""

    def __init__(self):
        super().__init__()
        self.first = None

    def _note(self, status, reason=""):
        if self.first is None:
            self.first = (status, reason)

    @staticmethod
    def _last_line(error):
        return "".join(traceback.format_exception(*error)).strip().splitlines()[-1]

    def addSuccess(self, test):
        self._note("pass")

    def addExpectedFailure(self, test, error):
        self._note("pass")

    def addFailure(self, test, error):
        self._note("fail", self._last_line(error))

    def addError(self, test, error):
        self._note("fail", self._last_line(error))

    def addUnexpectedSuccess(self, test):
        self._note("fail", "unexpected success")

    def addSkip(self, test, reason):
        self._note("skip", reason)

    def addSubTest(self, test, subtest, error):
        if error:
            self._note("fail", self._last_line(error))


def read_waiting(protocol, lacks):
    """The feature that each test waits for, for the tests that wait over this protocol."""
    waiting = {}
    paths = sorted(glob.glob(os.path.join(HERE, "waiting", "*.txt")))
    paths += [os.path.join(HERE, "lacking", lacked + ".txt") for lacked in lacks]
    for path in paths:
        feature = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="ascii") as lines:
            for line in lines:
                name = line.split("#")[0].strip()
                if ":" in name:
                    only, name = name.split(":")
                    if only != protocol:
                        continue
                if name:
                    if name in waiting:
                        sys.exit("%s is on two lists: %s and %s" % (name, waiting[name], feature))
                    waiting[name] = feature
    return waiting


def each_test(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each_test(test)
        else:
            yield test


def short_name(test):
    return test.id().split("riak.tests.")[-1]


def with_limit(seconds, action):
    """Runs the action; returns its exception, also that of a passed limit, or None."""
    def on_alarm(*_):
        raise TestTimeout("no end within %d seconds" % seconds)

    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(seconds)
    try:
        action()
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    finally:
        signal.alarm(0)


def run_test(test, seconds):
    outcomes = Outcomes()
    error = with_limit(seconds, lambda: test.run(outcomes))
    if outcomes.first is None:
        outcomes.first = ("fail", repr(error))
    return outcomes.first


def judge(outcome, feature):
    """The status (passed, failed or waiting) and a remark."""
    status, reason = outcome
    if feature is None:
        if status == "pass":
            return "passed", ""
        if status == "skip":
            return "failed", "skipped, and on no list: " + reason
        return "failed", reason
    if status == "pass":
        return "failed", "passes: take it off the list %s.txt" % feature
    return "waiting", reason


def prepare(arguments, protocol):
    """Sets the environment that the suite reads when it is imported, and imports it."""
    os.environ.update(
        RIAK_TEST_PROTOCOL=protocol,
        RIAK_TEST_HOST=arguments.host,
        RIAK_TEST_PB_PORT=str(arguments.pb_port),
        RIAK_TEST_HTTP_PORT=str(arguments.http_port),
    )
    os.environ.update({switch: "1" for switch in SWITCHES})
    sys.path.insert(0, HERE)
    importlib.import_module("riak_compat")
    riak = importlib.import_module("riak")
    importlib.import_module("riak.tests")
    readme = os.path.join(os.path.dirname(riak.__file__), "..", "README.md")
    if not os.path.exists(readme):
        with open(readme, "w", encoding="ascii") as file:
            file.write("A file for a test to store.\n")


def run_module(name, waiting, only, report):
    module = importlib.import_module("riak.tests." + name)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    tests = [test for test in each_test(suite) if only.search(short_name(test))]
    if not tests:
        return
    run_hook(module, "setUpModule", report)
    for test in tests:
        feature = waiting.pop(short_name(test), None)
        if feature == HARNESS:
            continue
        seconds = SECONDS_PER_WAITING_TEST if feature else SECONDS_PER_TEST
        start = time.monotonic()
        status, remark = judge(run_test(test, seconds), feature)
        report(short_name(test), status, "%.2f s  %s" % (time.monotonic() - start, remark))
    run_hook(module, "tearDownModule", report)


def run_hook(module, hook, report):
    error = with_limit(SECONDS_PER_TEST, getattr(module, hook, lambda: None))
    if error is not None:
        report("%s.%s" % (module.__name__.split(".")[-1], hook), "failed", repr(error))


def run_pass(arguments, protocol, result_path):
    """One protocol, in this process. Writes `status<TAB>count` lines."""
    prepare(arguments, protocol)
    only = re.compile(arguments.only)
    waiting = read_waiting(protocol, arguments.lacks)
    counts = collections.Counter()

    def report(name, status, remark):
        counts[status] += 1
        if status == "failed" or arguments.verbose:
            print("%-7s %s %s: %s" % (status.upper(), protocol, name, remark), flush=True)

    for module in MODULES:
        run_module(module, waiting, only, report)
    if arguments.only == ".":
        for name in sorted(waiting):
            report(name, "failed", "no such test: take it off the list %s.txt" % waiting[name])
    with open(result_path, "w", encoding="ascii") as result:
        for status, count in counts.items():
            result.write("%s\t%d\n" % (status, count))
    sys.stdout.flush()
    os._exit(0)  # the client's pools may leave threads behind


def run_example(arguments):
    """The reason why the example of docs/clients.md did not print what it should; None if it did."""
    example = os.path.join(HERE, "example.py")
    program = "import runpy, sys; sys.path.insert(0, %r); import riak_compat; runpy.run_path(%r)"
    command = [sys.executable, "-B", "-W", "ignore", "-c", program % (HERE, example)]
    try:
        ran = subprocess.run(
            command, env=dict(os.environ, PB_PORT=str(arguments.pb_port)), check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
            timeout=SECONDS_PER_TEST)
    except subprocess.TimeoutExpired:
        return "no end within %d seconds" % SECONDS_PER_TEST
    lines = ran.stdout.splitlines()
    is_right = (
        ran.returncode == 0 and len(lines) == 3 and lines[0] == "stored: 43"
        and "ann" in lines[1] and lines[2].startswith("counted: "))
    return None if is_right else ran.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--pb-port", type=int, default=8087)
    parser.add_argument("--http-port", type=int, default=8098)
    parser.add_argument("--protocol", action="append", choices=["pbc", "http"])
    parser.add_argument("--lacks", action="append", default=[], help="a list in lacking/")
    parser.add_argument("--only", default=".", help="regular expression on module.Class.test")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--result", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    protocols = arguments.protocol or ["pbc", "http"]
    if arguments.result:
        run_pass(arguments, protocols[0], arguments.result)
    total = collections.Counter()
    for protocol in protocols:
        with tempfile.NamedTemporaryFile("r") as result:
            command = [
                sys.executable, "-B", os.path.abspath(__file__), "--host", arguments.host,
                "--pb-port", str(arguments.pb_port), "--http-port", str(arguments.http_port),
                "--only", arguments.only, "--protocol", protocol, "--result", result.name,
            ]
            for lacked in arguments.lacks:
                command += ["--lacks", lacked]
            if arguments.verbose:
                command.append("--verbose")
            subprocess.run(command, check=False)
            lines = result.read().splitlines()
            if not lines:
                print("FAILED  %s: the pass did not reach its end" % protocol)
                total["failed"] += 1
            for line in lines:
                status, count = line.split("\t")
                total[status] += int(count)
    if arguments.only == "." and "indexes" not in arguments.lacks:
        wrong = run_example(arguments)
        total["passed" if wrong is None else "failed"] += 1
        if wrong is not None:
            print("FAILED  example.py: %s" % wrong)
    print("%d tests wait for features, see waiting/" % total["waiting"])
    print("%d passed, %d failed" % (total["passed"], total["failed"]))
    sys.exit(1 if total["failed"] else 0)


if __name__ == "__main__":
    main()
