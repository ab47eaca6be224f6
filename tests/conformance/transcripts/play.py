"""Plays recorded requests of a real Riak node to a server, and compares the answers with Riak's.

usage: play.py --http PORT --pb PORT [--verbose] [NAME...]
       play.py --types

Each file beside this one with the ending `.jsonl` is a transcript: a head line, and a line for each step,
in order. A step with another answer than Riak's has to stand in `better.txt`, with the answer and the
reason why it is better for a client; a step that is listed without need has to be taken off.
`--types` prints the bucket types that have to exist, a line for each with its properties.
"""
import argparse
import base64
import http.client
import json
import pathlib
import random
import re
import socket
import string
import struct
import sys
import time

import comparing
import messages
from better import Better, NotKept

FOLDER = pathlib.Path(__file__).parent
PATIENCE_SECONDS = 60

# Requests whose answers are several messages: always, or if they ask for that.
STREAMED = (17, 23, 40)
STREAMED_IF_ASKED = (15, 25)


class Player:
    """One transcript in progress: the connections, and what steps have saved for later ones."""

    def __init__(self, http_port, pb_port):
        self.place = f'127.0.0.1:{http_port}'
        self.pb_port = pb_port
        self.connection = None
        run = ''.join(random.choices(string.ascii_lowercase, k=6))
        self.saved = {'run': run, 'http': self.place}
        self.placeholders = comparing.Placeholders(run, self.place)

    def play(self, step):
        """Carries a step out; returns the differences of its answer."""
        time.sleep(step.get('sleep_ms', 0) / 1000)
        if 'http' in step:
            answer = self.send_http(step['http'])
            got = comparing.of_http(*answer, self.placeholders)
            self.save_of_http(step, *answer[1:])
        else:
            frames = self.send_protobuf(step['pb'])
            got = comparing.of_protobuf(frames, self.placeholders)
            self.save_of_protobuf(step, frames)
        return comparing.differences(step, got)

    def send_http(self, request):
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE_SECONDS)
        body = self.body_of(request)
        path = self.fill_in(request['path'])
        connection.putrequest(request['method'], path, skip_accept_encoding=True)
        for name, values in request.get('headers', {}).items():
            for value in values if isinstance(values, list) else [values]:
                connection.putheader(name, self.fill_in(value).encode())
        if body is not None:
            connection.putheader('Content-Length', str(len(body)))
        connection.endheaders(body or None)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.getheaders(), content

    def body_of(self, request):
        if 'body_b64' in request:
            return base64.b64decode(request['body_b64'])
        if 'body_repeat' in request:
            text, count = request['body_repeat']
            return text.encode() * count
        body = request.get('body')
        return None if body is None else self.fill_in(body).encode()

    def send_protobuf(self, request):
        if self.connection is None:
            self.connection = socket.create_connection(('127.0.0.1', self.pb_port), PATIENCE_SECONDS)
        code = request['code']
        if 'payload_hex' in request:
            payload = bytes.fromhex(request['payload_hex'])
        else:
            message = messages.REQUESTS.get(code, 'Empty')
            payload = messages.encode(message, request.get('request', {}), self.bytes_of)
        self.connection.sendall(struct.pack('>IB', len(payload) + 1, code) + payload)
        is_asked = code in STREAMED_IF_ASKED and request['request'].get('stream')
        may_go_on = code in STREAMED or is_asked
        frames = []
        while True:
            frame = self.receive()
            if frame is None:
                self.connection = None
                return frames
            frames.append(frame)
            code, fields = frame
            if not may_go_on or code == 0 or fields.get('done'):
                return frames

    def receive(self):
        """The next frame; `None` if the connection has ended."""
        length = self.receive_exactly(4)
        frame = length and self.receive_exactly(struct.unpack('>I', length)[0])
        if not frame:
            return None
        return frame[0], messages.decode(messages.REPLIES.get(frame[0]), frame[1:])

    def receive_exactly(self, count):
        received = b''
        while len(received) < count:
            more = self.connection.recv(count - len(received))
            if not more:
                return None
            received += more
        return received

    def fill_in(self, text):
        return re.sub(r'\$\{(\w+)\}', lambda it: str(self.saved.get(it[1], it[0])), text)

    def bytes_of(self, given):
        if isinstance(given, str):
            return self.fill_in(given).encode()
        if 'hex' in given:
            return bytes.fromhex(given['hex'])
        value = self.saved[given['var']]
        return value if isinstance(value, bytes) else str(value).encode()

    def save_of_http(self, step, headers, body):
        for name, source in step.get('save', {}).items():
            kind, _, place = source.partition(':')
            if kind == 'header':
                found = [value for header, value in headers if header.lower() == place.lower()]
                self.saved[name] = found[0] if found else ''
            elif kind == 'body-line':
                lines = body.decode().split('\n')
                self.saved[name] = lines[int(place)] if int(place) < len(lines) else ''
            elif kind == 'json':
                documents = comparing.documents_in(body.decode())
                found = comparing.look_up(comparing.joined(documents), place)
                # Parts that are missing were missing for the recorded client too.
                if found is not None:
                    self.saved[name] = found

    def save_of_protobuf(self, step, frames):
        for name, source in step.get('save', {}).items():
            place = source.partition(':')[2]
            for _, fields in frames:
                found = comparing.look_up(fields, place)
                if isinstance(found, dict) and 'hex' in found:
                    found = bytes.fromhex(found['hex'])
                if found is not None:
                    self.saved[name] = found


def read_transcript(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[0], lines[1:]


def judge(step, found, better):
    """True if a step is as it should be, and the line to report about it."""
    name = f"{step['id']} ({step['why']})"
    if not found:
        return True, name
    if step['id'] in better.reasons:
        better.needed.add(step['id'])
        surprises = list(better.surprises(step['id'], found))
        if not surprises:
            return True, f'{name}: better, {better.reasons[step["id"]]}'
        return False, described(f'{name} is listed in better.txt with another answer', 'listed', surprises)
    return False, described(f'{name} differs', 'Riak', found)


def described(title, source, places):
    lines = [f'    {place or "/"}: {source} {wanted!r:.400}, here {got!r:.400}'
             for place, wanted, got in places]
    return '\n'.join([title, *lines])


def play_all(steps, player, better):
    """Plays a transcript; yields the result of `judge` for each step."""
    not_kept = NotKept(better)
    for step in steps:
        found = not_kept.unexplained(step, player.play(step))
        yield judge(step, found, better)
        not_kept.take(step, is_same=not found)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument('--http', type=int)
    arguments.add_argument('--pb', type=int)
    arguments.add_argument('--types', action='store_true')
    arguments.add_argument('--verbose', action='store_true')
    arguments.add_argument('names', nargs='*')
    asked = arguments.parse_args()
    paths = sorted(FOLDER.glob('*.jsonl'))
    transcripts = {path.stem: read_transcript(path) for path in paths}
    if asked.types:
        types = {}
        for head, _ in transcripts.values():
            types.update(head['bucket_types'])
        for name, properties in sorted(types.items()):
            print(name, json.dumps({'props': properties}, separators=(',', ':')))
        return 0
    better = Better((FOLDER / 'better.txt').read_text())
    passed = failed = 0
    played = set()
    for name, (_, steps) in transcripts.items():
        if asked.names and name not in asked.names:
            continue
        played.update(step['id'] for step in steps)
        for is_right, remark in play_all(steps, Player(asked.http, asked.pb), better):
            passed, failed = passed + is_right, failed + (not is_right)
            if asked.verbose or not is_right:
                print('ok     ' if is_right else 'FAILED ', remark)
    listed = set(better.reasons) & played if asked.names else set(better.reasons)
    for step in sorted(listed - better.needed):
        failed += 1
        print('FAILED ', step, 'is the same or is no step: take it off better.txt')
    print(f'{passed} passed, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
