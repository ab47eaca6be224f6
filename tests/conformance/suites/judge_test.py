"""The test of judge.py: its readers and its verdicts."""
import os
import tempfile
import unittest

import judge
from judge import Outcome

GO = """=== RUN   TestOne
--- PASS: TestOne (0.00s)
=== RUN   TestTwo
    two_test.go:7: expected 1, got 2
--- FAIL: TestTwo (0.01s)
=== RUN   TestThree
--- SKIP: TestThree (0.00s)
FAIL
"""

JUNIT = """<testsuite><testcase classname="a.B" name="c"/>
<testcase classname="a.B" name="d"><failure message="differs"/></testcase>
<testcase name="e"><skipped/></testcase>
<testcase name="m:399 -f/0-fun-180- (a title)"/></testsuite>
"""

RSPEC = """{"examples": [
  {"file_path": "./spec/a.rb", "full_description": "adds", "status": "passed"},
  {"file_path": "./spec/a.rb", "full_description": "takes", "status": "failed",
   "exception": {"message": "no"}}],
 "summary": {"errors_outside_of_examples_count": 0}}
"""

YCSB = """[READ], Operations, 7
[READ], Return=OK, 7
[SCAN], Return=OK, 5
[SCAN], Return=ERROR, 2
"""


def read(form, text, name="load.txt"):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return judge.read_outcomes(["%s:%s" % (form, path)])


class Reading(unittest.TestCase):
    def test_each_form(self):
        outcomes, wrong = read("go", GO)
        self.assertEqual([it.status for it in outcomes], ["pass", "fail", "skip"])
        self.assertIn("expected 1, got 2", outcomes[1].reason)
        self.assertEqual(wrong, [])
        outcomes, _ = read("junit", JUNIT)
        self.assertEqual(
            [(it.name, it.status) for it in outcomes],
            [("a.B.c", "pass"), ("a.B.d", "fail"), ("e", "skip"), ("m (a title)", "pass")])
        outcomes, _ = read("rspec", RSPEC)
        self.assertEqual(
            outcomes,
            [Outcome("spec/a.rb: adds", "pass", ""), Outcome("spec/a.rb: takes", "fail", "no")])
        outcomes, _ = read("ycsb", YCSB)
        self.assertEqual(
            outcomes,
            [Outcome("load.READ", "pass", ""), Outcome("load.SCAN", "fail", "2 ERROR")])

    def test_files_that_are_cut_or_missing_are_named(self):
        self.assertIn("cannot be read as junit", read("junit", JUNIT[:80])[1][0])
        self.assertIn("no such file", judge.read_outcomes(["go:/nowhere/*.txt"])[1][0])


class Judging(unittest.TestCase):
    waiting = {"waits": "search", "any": "harness"}

    def judged(self, *outcomes, tests=None):
        counted = sum(outcome.name != "any" for outcome in outcomes)
        tests = counted if tests is None else tests
        counts, failures = judge.judge(outcomes, self.waiting, tests)
        return counts["passed"], counts["waiting"], failures

    def test_a_test_on_no_list_has_to_pass(self):
        rest = [Outcome("waits", "fail", ""), Outcome("any", "pass", "")]
        self.assertEqual(self.judged(Outcome("a", "pass", ""), *rest), (1, 2, []))
        self.assertIn("a: why", self.judged(Outcome("a", "fail", "why"), *rest)[2])
        self.assertIn("on no list", self.judged(Outcome("a", "skip", ""), *rest)[2][0])

    def test_the_lists_can_only_shrink(self):
        passes = [Outcome("waits", "pass", ""), Outcome("any", "fail", "")]
        self.assertIn("take it off the list search.txt", self.judged(*passes)[2][0])
        self.assertIn("no such test", self.judged(Outcome("any", "fail", ""))[2][0])

    def test_a_suite_that_ended_early_fails(self):
        all_of_it = [Outcome("waits", "skip", ""), Outcome("any", "fail", "")]
        self.assertIn("1 tests instead of 2", self.judged(*all_of_it, tests=2)[2][0])
        self.assertEqual(self.judged(all_of_it[0]), (0, 1, []))


if __name__ == "__main__":
    unittest.main()
