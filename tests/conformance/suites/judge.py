"""Judges what a client's own test suite reported by the lists of what waits.

Usage: judge.py --suite FOLDER --tests N FORM:PATTERN ...

FORM is the form of the result files that match PATTERN: `go` is what `go test -v` prints, `junit` is
XML, `rspec` is RSpec's JSON, and `ycsb` is what YCSB prints. The lists in `waiting/` of the suite's
folder begin with their reason as a comment, and have one test a line:

- a test that is on no list has to pass: a failure fails the run, and so does a skip;
- a test on a list has to fail or to be skipped: when it passes, it has to come off the list;
- the tests in `waiting/harness.txt` fail with every server, or depend on the machine: neither their
  outcome counts, nor whether they are reported.

So the lists can only shrink. The suite is pinned, so it reports N tests beside those of the harness
every time: a suite that ended early is found by its smaller number.
"""
import argparse
import collections
import glob
import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

HARNESS = "harness"
REASON_CHARACTERS_MAX = 300

# The status is `pass`, `fail` or `skip`.
Outcome = collections.namedtuple("Outcome", "name status reason")


def lines_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def read_go(path):
    """A test prints its reasons before its result."""
    statuses = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}
    printed = []
    for line in lines_of(path):
        found = re.match(r"\s*--- (PASS|FAIL|SKIP): (\S+)", line)
        if found:
            yield Outcome(found.group(2), statuses[found.group(1)], " ".join(printed[-3:]))
        if found or line.startswith("=== "):
            printed = []
        else:
            printed.append(line.strip())


def read_junit(path):
    """Names of Erlang's tests hold numbers that its compiler gives; they are taken off."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
        name = re.sub(r":\d+ -\S+-fun-\d+- ", " ", name)
        status, reason = "pass", ""
        for kind, meaning in (("failure", "fail"), ("error", "fail"), ("skipped", "skip")):
            found = case.find(kind)
            if found is not None:
                status, reason = meaning, found.get("message") or found.text or ""
                break
        yield Outcome(name, status, reason)


def read_rspec(path):
    statuses = {"passed": "pass", "failed": "fail", "pending": "skip"}
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    for example in report["examples"]:
        name = "%s: %s" % (example["file_path"], example["full_description"])
        reason = example.get("exception", {}).get("message") or example.get("pending_message")
        yield Outcome(re.sub(r"^\./", "", name), statuses[example["status"]], reason or "")
    if report["summary"].get("errors_outside_of_examples_count"):
        yield Outcome(path, "fail", "an error outside of the examples")


def read_ycsb(path):
    """Each kind of operation has a line for each of its results, with their number."""
    workload = os.path.splitext(os.path.basename(path))[0]
    results = collections.defaultdict(list)
    for line in lines_of(path):
        found = re.match(r"\[([\w-]+)\], Return=(\w+), (\d+)", line)
        if found:
            results[found.group(1)].append((found.group(2), int(found.group(3))))
    for operation, counts in sorted(results.items()):
        wrong = ["%d %s" % (count, result) for result, count in counts if result != "OK"]
        name = "%s.%s" % (workload, operation)
        yield Outcome(name, "fail" if wrong else "pass", ", ".join(wrong))


FORMS = {"go": read_go, "junit": read_junit, "rspec": read_rspec, "ycsb": read_ycsb}


def read_outcomes(results):
    """The outcomes of all files, and what is wrong with the files."""
    outcomes, wrong = [], []
    for result in results:
        form, pattern = result.split(":", 1)
        paths = sorted(glob.glob(pattern))
        if not paths:
            wrong.append("%s: no such file; the suite did not reach its end" % pattern)
        for path in paths:
            try:
                outcomes.extend(FORMS[form](path))
            except (ElementTree.ParseError, ValueError, KeyError) as error:
                wrong.append("%s: it cannot be read as %s: %s" % (path, form, error))
    return outcomes, wrong


def read_waiting(folder):
    """The list of each test that waits, by the test's name."""
    waiting = {}
    for path in sorted(glob.glob(os.path.join(folder, "waiting", "*.txt"))):
        lines = lines_of(path)
        title = os.path.splitext(os.path.basename(path))[0]
        if not lines or not lines[0].startswith("# "):
            sys.exit("%s does not begin with its reason" % path)
        for name in (line.strip() for line in lines if not line.startswith("#")):
            if name in waiting:
                sys.exit("%s is on two lists: %s and %s" % (name, waiting[name], title))
            if name:
                waiting[name] = title
    return waiting


def verdict(outcome, title):
    """The status (passed, failed or waiting) and a remark."""
    if title == HARNESS:
        return "waiting", ""
    if title is not None:
        if outcome.status == "pass":
            return "failed", "passes: take it off the list %s.txt" % title
        return "waiting", ""
    if outcome.status == "skip":
        return "failed", "skipped, and on no list: " + outcome.reason
    return ("passed" if outcome.status == "pass" else "failed"), outcome.reason


def judge(outcomes, waiting, tests):
    """Counts of statuses, and a line for each failure."""
    counts, failures = collections.Counter(), []

    def fail(text):
        counts["failed"] += 1
        failures.append(" ".join(text.split())[:REASON_CHARACTERS_MAX])

    for outcome in outcomes:
        status, remark = verdict(outcome, waiting.get(outcome.name))
        if status == "failed":
            fail("%s: %s" % (outcome.name, remark))
        else:
            counts[status] += 1
    for name in sorted(set(waiting) - {outcome.name for outcome in outcomes}):
        if waiting[name] != HARNESS:
            fail("%s: no such test: take it off the list %s.txt" % (name, waiting[name]))
    reported = sum(waiting.get(outcome.name) != HARNESS for outcome in outcomes)
    if reported != tests:
        fail("the suite reported %d tests instead of %d" % (reported, tests))
    return counts, failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--suite", required=True, metavar="FOLDER")
    parser.add_argument("--tests", type=int, required=True, metavar="N")
    parser.add_argument("results", nargs="+", metavar="FORM:PATTERN")
    arguments = parser.parse_args()
    outcomes, wrong = read_outcomes(arguments.results)
    counts, failures = judge(outcomes, read_waiting(arguments.suite), arguments.tests)
    for failure in wrong + failures:
        print("FAILED  %s" % failure)
    counts["failed"] += len(wrong)
    print("%d tests wait, see waiting/" % counts["waiting"])
    print("%d passed, %d failed" % (counts["passed"], counts["failed"]))
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
