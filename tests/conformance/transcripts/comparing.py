"""Answers in the form in which they are compared, and the places where two of them differ.

Clocks, entity tags and times differ between any two runs, and are compared by their presence. Some parts
are not compared, since clients do not go by them: `Vary`, the type of a body that is empty, the wording of
HTML pages, the text of a continuation. Where Riak's own process failed over a request, any refusal will
do.
"""
import base64
import copy
import json
import re

COMPARED_HEADERS = re.compile(
    'content-type|content-encoding|location|link|etag|last-modified|allow|expires|x-riak-.*'
    '|accept-.*|retry-after')
HEADERS_BY_PRESENCE = ('etag', 'last-modified', 'x-riak-vclock', 'expires')
FIELDS_BY_PRESENCE = ('vclock', 'vtag', 'last_mod', 'last_mod_usecs', 'etag', 'context')
PRESENT = '(present)'
ABSENT = '(absent)'


class Placeholders:
    """Placeholders for the texts that are new in every run."""

    def __init__(self, run, place):
        self.pairs = [(run, '${run}'), (place, '${http}')]

    def put_in(self, text):
        for value, name in self.pairs:
            text = text.replace(value, name)
        return text


def of_http(status, headers, body, placeholders):
    """An HTTP answer in comparable form."""
    shown = {}
    for name, value in headers:
        name = name.lower()
        if not COMPARED_HEADERS.fullmatch(name):
            continue
        value = placeholders.put_in(value)
        if name in HEADERS_BY_PRESENCE:
            value = PRESENT
        elif name == 'content-type':
            value = re.sub('boundary=[^;]*', 'boundary=${boundary}', value)
        elif name == 'link':
            value = sorted({*shown.get(name, []), *re.split(r',\s*(?=<)', value)})
        shown[name] = value
    return {'status': status, 'headers': shown, 'body': of_body(headers, body, placeholders)}


def of_body(headers, body, placeholders):
    """A body: JSON, the parts of a multipart, a text, or bytes in base64."""
    media_type = next((value for name, value in headers if name.lower() == 'content-type'), '')
    if media_type.startswith('multipart/'):
        parts = parts_of(media_type, body)
        shown = [of_http(None, *part, placeholders) for part in parts]
        documents = [part['body'] for part in shown]
        if parts and all(isinstance(it, dict) and 'json' in it for it in documents):
            return {'json': by_presence(joined([it['json'] for it in documents]))}
        for part in shown:
            del part['status']
        return {'parts': sorted(shown, key=canonical)}
    try:
        text = placeholders.put_in(body.decode())
    except UnicodeDecodeError:
        return {'b64': base64.b64encode(body).decode()}
    documents = documents_in(text) if 'json' in media_type or text[:1] in ('{', '[') else []
    return {'json': by_presence(joined(documents))} if documents else text


def parts_of(media_type, body):
    boundary = re.search('boundary="?([^";]+)', media_type).group(1).encode()
    parts = []
    for piece in body.split(b'--' + boundary)[1:]:
        if piece.startswith(b'--'):
            break
        head, _, content = piece.lstrip(b'\r\n').partition(b'\r\n\r\n')
        lines = [line.decode('latin-1').partition(':') for line in head.split(b'\r\n') if line]
        headers = [(name.strip(), value.strip()) for name, _, value in lines]
        parts.append((headers, content.removesuffix(b'\r\n')))
    return parts


def documents_in(text):
    """The JSON documents that follow each other in a text; none if it is anything else."""
    decoder, documents, at = json.JSONDecoder(), [], 0
    try:
        while text[at:].strip():
            at += len(text[at:]) - len(text[at:].lstrip())
            document, at = decoder.raw_decode(text, at)
            documents.append(document)
    except ValueError:
        return []
    return documents


def joined(documents):
    """The documents of a stream as one: lists of the same name are appended, results of MapReduce by phase."""
    documents = [by_phase(it) for it in documents]
    if len(documents) == 1 or not all(isinstance(it, dict) for it in documents):
        return documents[0] if len(documents) == 1 else documents
    whole = {}
    for document in documents:
        for name, value in document.items():
            if isinstance(value, list) and isinstance(whole.get(name), list):
                whole[name] += value
            else:
                whole[name] = value
    return whole


def by_phase(document):
    """A part of a phase's results under the phase's name; anything else as it is."""
    if not isinstance(document, dict):
        return document
    if document.keys() == {'phase', 'data'}:
        return {f"phase {document['phase']}": document['data']}
    if 'response' in document:
        response = document['response']
        results = documents_in(response) if isinstance(response, str) else []
        is_list = len(results) == 1 and isinstance(results[0], list)
        return {f"phase {document.get('phase', 0)}": results[0] if is_list else [response]}
    return document


def of_protobuf(frames, placeholders):
    """The messages of an answer, each a code and its fields, as one."""
    fields = joined([fields for _, fields in frames])
    text = placeholders.put_in(json.dumps(fields))
    return {'code': frames[-1][0] if frames else None, 'msg': by_presence(json.loads(text))}


def by_presence(value):
    if isinstance(value, dict):
        return {name: PRESENT if name in FIELDS_BY_PRESENCE and it else by_presence(it)
                for name, it in value.items()}
    return [by_presence(it) for it in value] if isinstance(value, list) else value


def differences(step, got):
    """The differences between an answer and the step's: a list of (place, expected, got)."""
    wanted = step['expect']
    if is_failure_of_riak(wanted) and is_refusal(got):
        return []
    wanted, got = (without_the_incomparable(step, it) for it in (wanted, got))
    if wanted.get('body') == '' or got.get('body') == '':
        for answer in (wanted, got):
            answer.get('headers', {}).pop('content-type', None)
            answer['body'] = '' if answer.get('body') == '(page)' else answer.get('body')
    return list(unequal('', wanted, got))


def is_refusal(answer):
    """True if an answer reports a mistake in the request; a failure of the server is none."""
    if 'status' in answer:
        return 400 <= answer['status'] < 500
    return answer['code'] == 0 and bool(answer['msg'].get('errmsg'))


def is_failure_of_riak(answer):
    if answer.get('status') == 500:
        return answer.get('headers', {}).get('content-type') == 'text/html'
    text = answer.get('msg', {}).get('errmsg', '') if isinstance(answer.get('msg'), dict) else ''
    if isinstance(text, dict):
        text = bytes.fromhex(text['hex']).decode('latin-1')
    return text == '(volatile)' or text.startswith('Error processing incoming message')


def without_the_incomparable(step, answer):
    answer = copy.deepcopy(answer)
    answer.pop('closed', None)
    for place in step.get('volatile', []):
        change(answer, place, lambda _: '(volatile)')
    for place in step.get('unordered', []):
        change(answer, place, lambda it: sorted(it, key=canonical) if isinstance(it, list) else it)
    answer.get('headers', {}).pop('vary', None)
    body = answer.get('body')
    if isinstance(body, str) and body[:5].lower() == '<html':
        answer['body'] = '(page)'
    holders = (answer.get('msg'), body.get('json') if isinstance(body, dict) else None)
    for holder in holders:
        if isinstance(holder, dict) and holder.get('continuation'):
            holder['continuation'] = PRESENT
    return answer


def unequal(place, wanted, got):
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name in {**wanted, **got}:
            below = f'{place}/{name}'
            yield from unequal(below, wanted.get(name, ABSENT), got.get(name, ABSENT))
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for at, pair in enumerate(zip(wanted, got)):
            yield from unequal(f'{place}/{at}', *pair)
    elif type(wanted) is not type(got) or wanted != got:
        yield place, wanted, got


def pieces_of(pointer):
    return [it.replace('~1', '/').replace('~0', '~') for it in pointer.split('/')[1:]]


def look_up(value, pointer):
    """The value at a JSON pointer; `None` if there is none."""
    for piece in pieces_of(pointer):
        if isinstance(value, list) and piece.isdigit() and int(piece) < len(value):
            value = value[int(piece)]
        elif isinstance(value, dict) and piece in value:
            value = value[piece]
        else:
            return None
    return value


def change(value, pointer, by):
    """Changes the value at a JSON pointer, in which `*` stands for each of a list."""
    *above, last = pieces_of(pointer)
    holders = [value]
    for piece in above:
        if piece == '*':
            holders = [it for holder in holders if isinstance(holder, list) for it in holder]
        else:
            below = [look_up(holder, f'/{piece}') for holder in holders]
            holders = [it for it in below if it is not None]
    for holder in holders:
        if isinstance(holder, dict) and last in holder:
            holder[last] = by(holder[last])
        elif isinstance(holder, list):
            places = range(len(holder)) if last == '*' else [int(last)]
            for at in places:
                if at < len(holder):
                    holder[at] = by(holder[at])


def canonical(value):
    return json.dumps(value, sort_keys=True)
