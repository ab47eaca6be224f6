"""The list of better answers, against answers that it does not name.

A listed step was once right with any answer of the server.
"""
import unittest

import comparing
import play
from better import Better

LIST = """
# A remark.
a b: a reason
    /status = 400
    /body = {"json": {"p": "text", "q": [{"r": "(present)"}]}}
c/p: another
d: a third
    /headers/x = "(absent)"
    /headers/y = "(present)"
"""
BODY = {'json': {'p': [116, 101, 120, 116], 'q': [{'r': 5}]}}


class Listed(unittest.TestCase):
    def is_right(self, step, answers):
        found = [(place, 'what Riak said', answer) for place, answer in answers.items()]
        return play.judge({'id': step, 'why': 'it was asked'}, found, Better(LIST))[0]

    def test_the_listed_answer_is_right(self):
        for step in ('a', 'b'):
            self.assertTrue(self.is_right(step, {'/status': 400, '/body': BODY}))
        self.assertTrue(self.is_right('d', {'/headers/x': '(absent)', '/headers/y': 'z'}))

    def test_every_other_answer_is_wrong(self):
        for answers in (
            {'/status': 500, '/body': BODY},
            {'/status': 400},
            {'/status': 400, '/body': BODY, '/headers/etag': '(absent)'},
            {'/status': 400, '/body': {'json': {'p': 'other', 'q': [{'r': 5}]}}},
            {'/status': 400, '/body': {'json': {'p': 'text', 'q': []}}},
            {'/status': 400, '/body': {'json': {'p': 'text', 'q': [{}]}}},
            {'/status': 400, '/body': 'text'},
            {'/status': True, '/body': BODY},
        ):
            self.assertFalse(self.is_right('a', answers), answers)
        self.assertFalse(self.is_right('c', {'/status': 400}))
        self.assertFalse(self.is_right('d', {'/headers/x': 'here', '/headers/y': 'z'}))
        self.assertFalse(self.is_right('d', {'/headers/x': '(absent)', '/headers/y': '(absent)'}))
        self.assertFalse(self.is_right('no such step', {'/status': 400}))


class RiakFailed(unittest.TestCase):
    """A request over which Riak's own process failed was once right with any error, 500 among them."""

    def test_a_refusal_is_right_and_another_failure_is_not(self):
        step = {'expect': {'status': 500, 'headers': {'content-type': 'text/html'}, 'body': ''}}
        for status, is_right in ((400, True), (404, True), (500, False), (503, False), (200, False)):
            got = {'status': status, 'headers': {}, 'body': 'text'}
            self.assertEqual(not comparing.differences(step, got), is_right, status)
        step = {'expect': {'code': 0, 'msg': {'errmsg': 'Error processing incoming message: x'}}}
        for code, message, is_right in ((0, {'errmsg': 'why'}, True), (0, {}, False), (12, {}, False)):
            got = {'code': code, 'msg': message}
            self.assertEqual(not comparing.differences(step, got), is_right, code)


if __name__ == '__main__':
    unittest.main()
