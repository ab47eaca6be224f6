"""The list of steps that are answered otherwise than Riak answered them, each with the reason.

A line is `STEP STEP ...: reason`; the lines indented below it are the places that differ in our answer,
each with its content: `PLACE = JSON`. Any other answer fails. `STEP/PROPERTY` is a step that sets a
property which Riak keeps and this server does not: later answers about that bucket are compared without
the property, until a step that is answered alike sets it again or resets the properties.
"""
import json
import re

import comparing

PROPERTY_SHOWN = re.compile('/(?:body/json|msg)/props/([^/]+)')
PROPERTIES_OF_BUCKET = re.compile('(?:/types/([^/]+))?/buckets/([^/]+)/props')
AS_RIAK = '(as Riak)'
GET_PROPERTIES, SET_PROPERTIES, RESET_PROPERTIES = 19, 21, 29


class Better:
    """The list, and which of its steps were needed."""

    def __init__(self, text):
        self.reasons = {}
        self.answers = {}
        self.not_kept = {}
        self.needed = set()
        listed = []
        for line in text.splitlines():
            if not line.strip() or line.startswith('#'):
                continue
            if line.startswith(' '):
                place, _, answer = line.strip().partition(' = ')
                for step in listed:
                    self.answers[step][place] = json.loads(answer)
                continue
            steps, _, reason = line.partition(':')
            if not reason.strip():
                raise ValueError(f'better.txt: a step without a reason: {line}')
            listed = []
            for step in steps.split():
                step, _, name = step.partition('/')
                listed.append(step)
                self.reasons[step] = reason.strip()
                self.answers[step] = {}
                if name:
                    self.not_kept.setdefault(step, set()).add(name)

    def surprises(self, step, found):
        """The places where our answer to a listed step is not the listed one: (place, listed, got)."""
        listed = self.answers[step]
        got = {place: answer for place, _, answer in found}
        for place in {**listed, **got}:
            # A place that is not among the differences is as Riak has it.
            pair = listed.get(place, AS_RIAK), got.get(place, AS_RIAK)
            if not is_as_listed(*pair):
                yield place, *pair


def is_as_listed(listed, got):
    """True if a part of an answer is the listed one; lists of characters are texts, as Erlang has them."""
    if listed == comparing.PRESENT:
        return got not in (AS_RIAK, comparing.ABSENT)
    if isinstance(listed, str) and isinstance(got, list):
        return got == [ord(character) for character in listed]
    if isinstance(listed, dict) and isinstance(got, dict):
        return listed.keys() == got.keys() and all(is_as_listed(it, got[name]) for name, it in listed.items())
    if isinstance(listed, list) and isinstance(got, list):
        return len(listed) == len(got) and all(map(is_as_listed, listed, got))
    return type(listed) is type(got) and listed == got


class NotKept:
    """The properties of each bucket that only Riak kept, each with its step; of one transcript."""

    def __init__(self, better):
        self.better = better
        self.steps = {}

    def unexplained(self, step, found):
        """The differences that do not come of an earlier step."""
        missing = self.steps.get(bucket_of(step), {})
        rest = []
        for difference in found:
            shown = PROPERTY_SHOWN.match(difference[0])
            cause = shown and missing.get(shown[1])
            if cause:
                self.better.needed.add(cause)
            else:
                rest.append(difference)
        return rest

    def take(self, step, is_same):
        """Takes in the properties that a step sets or resets; they count from the next step on."""
        missing = self.steps.setdefault(bucket_of(step), {})
        names = properties_set_by(step)
        if names is None and is_same:
            missing.clear()
        for name in names or ():
            if name in self.better.not_kept.get(step['id'], ()):
                missing[name] = step['id']
            elif is_same:
                missing.pop(name, None)


def bucket_of(step):
    """The bucket whose properties a step reads or changes; `None` for any other step."""
    if 'http' in step:
        found = PROPERTIES_OF_BUCKET.fullmatch(step['http']['path'])
        return found and (found[1] or 'default', found[2])
    if step['pb']['code'] in (GET_PROPERTIES, SET_PROPERTIES, RESET_PROPERTIES):
        asked = step['pb'].get('request', {})
        return asked.get('type', 'default'), str(asked.get('bucket'))
    return None


def properties_set_by(step):
    """The names that a step sets, which may be none; `None` if it resets all of a bucket."""
    if bucket_of(step) is None:
        return []
    if 'pb' in step:
        is_reset = step['pb']['code'] == RESET_PROPERTIES
        return None if is_reset else list(step['pb'].get('request', {}).get('props', {}))
    method = step['http']['method']
    if method != 'PUT':
        return None if method == 'DELETE' else []
    try:
        return list(json.loads(step['http'].get('body', ''))['props'])
    except (ValueError, TypeError, KeyError):
        return []
