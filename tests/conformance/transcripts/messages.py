"""Messages of the protocol-buffer interface as dictionaries: fields by name, in both directions.

Only the messages that the transcripts use are known. A field's kind is `bytes`, `int` or `bool`, or the
name of a message; a list of one kind is a field that repeats. Bytes are shown as text where they are
printable UTF-8, and as {"hex": ...} otherwise.
"""

PAIR = {1: ('key', 'bytes'), 2: ('value', 'bytes')}

MESSAGES = {
    'Error': {1: ('errmsg', 'bytes'), 2: ('errcode', 'int')},
    'ServerInfo': {1: ('node', 'bytes'), 2: ('server_version', 'bytes')},
    'Pair': PAIR,
    'ClientId': {1: ('client_id', 'bytes')},
    'GetRequest': {
        1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('r', 'int'), 4: ('pr', 'int'),
        5: ('basic_quorum', 'bool'), 6: ('notfound_ok', 'bool'), 7: ('if_modified', 'bytes'),
        8: ('head', 'bool'), 9: ('deletedvclock', 'bool'), 10: ('timeout', 'int'),
        11: ('sloppy_quorum', 'bool'), 12: ('n_val', 'int'), 13: ('type', 'bytes'),
        14: ('node_confirms', 'int'),
    },
    'GetReply': {1: ('content', ['Content']), 2: ('vclock', 'bytes'), 3: ('unchanged', 'bool')},
    'PutRequest': {
        1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('vclock', 'bytes'),
        4: ('content', 'Content'), 5: ('w', 'int'), 6: ('dw', 'int'), 7: ('return_body', 'bool'),
        8: ('pw', 'int'), 9: ('if_not_modified', 'bool'), 10: ('if_none_match', 'bool'),
        11: ('return_head', 'bool'), 12: ('timeout', 'int'), 13: ('asis', 'bool'),
        14: ('sloppy_quorum', 'bool'), 15: ('n_val', 'int'), 16: ('type', 'bytes'),
        17: ('node_confirms', 'int'),
    },
    'PutReply': {1: ('content', ['Content']), 2: ('vclock', 'bytes'), 3: ('key', 'bytes')},
    'DeleteRequest': {
        1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('rw', 'int'), 4: ('vclock', 'bytes'),
        5: ('r', 'int'), 6: ('w', 'int'), 7: ('pr', 'int'), 8: ('pw', 'int'), 9: ('dw', 'int'),
        10: ('timeout', 'int'), 11: ('sloppy_quorum', 'bool'), 12: ('n_val', 'int'),
        13: ('type', 'bytes'),
    },
    'Content': {
        1: ('value', 'bytes'), 2: ('content_type', 'bytes'), 3: ('charset', 'bytes'),
        4: ('content_encoding', 'bytes'), 5: ('vtag', 'bytes'), 6: ('links', ['Link']),
        7: ('last_mod', 'int'), 8: ('last_mod_usecs', 'int'), 9: ('usermeta', ['Pair']),
        10: ('indexes', ['Pair']), 11: ('deleted', 'bool'),
    },
    'Link': {1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('tag', 'bytes')},
    'ListBucketsRequest': {1: ('timeout', 'int'), 2: ('stream', 'bool'), 3: ('type', 'bytes')},
    'ListBucketsReply': {1: ('buckets', ['bytes']), 2: ('done', 'bool')},
    'ListKeysRequest': {1: ('bucket', 'bytes'), 2: ('timeout', 'int'), 3: ('type', 'bytes')},
    'ListKeysReply': {1: ('keys', ['bytes']), 2: ('done', 'bool')},
    'BucketRequest': {1: ('bucket', 'bytes'), 2: ('type', 'bytes')},
    'TypeRequest': {1: ('type', 'bytes')},
    'PropertiesReply': {1: ('props', 'Properties')},
    'SetBucketRequest': {1: ('bucket', 'bytes'), 2: ('props', 'Properties'), 3: ('type', 'bytes')},
    'SetTypeRequest': {1: ('type', 'bytes'), 2: ('props', 'Properties')},
    'Function': {1: ('module', 'bytes'), 2: ('function', 'bytes')},
    'Hook': {1: ('modfun', 'Function'), 2: ('name', 'bytes')},
    'Properties': {
        1: ('n_val', 'int'), 2: ('allow_mult', 'bool'), 3: ('last_write_wins', 'bool'),
        4: ('precommit', ['Hook']), 5: ('has_precommit', 'bool'), 6: ('postcommit', ['Hook']),
        7: ('has_postcommit', 'bool'), 8: ('chash_keyfun', 'Function'), 9: ('linkfun', 'Function'),
        10: ('old_vclock', 'int'), 11: ('young_vclock', 'int'), 12: ('big_vclock', 'int'),
        13: ('small_vclock', 'int'), 14: ('pr', 'int'), 15: ('r', 'int'), 16: ('w', 'int'),
        17: ('pw', 'int'), 18: ('dw', 'int'), 19: ('rw', 'int'), 20: ('basic_quorum', 'bool'),
        21: ('notfound_ok', 'bool'), 22: ('backend', 'bytes'), 23: ('search', 'bool'),
        24: ('repl', 'int'), 25: ('search_index', 'bytes'), 26: ('datatype', 'bytes'),
        27: ('consistent', 'bool'), 28: ('write_once', 'bool'), 29: ('hll_precision', 'int'),
    },
    'IndexRequest': {
        1: ('bucket', 'bytes'), 2: ('index', 'bytes'), 3: ('qtype', 'int'), 4: ('key', 'bytes'),
        5: ('range_min', 'bytes'), 6: ('range_max', 'bytes'), 7: ('return_terms', 'bool'),
        8: ('stream', 'bool'), 9: ('max_results', 'int'), 10: ('continuation', 'bytes'),
        11: ('timeout', 'int'), 12: ('type', 'bytes'), 13: ('term_regex', 'bytes'),
        14: ('pagination_sort', 'bool'), 15: ('cover_context', 'bytes'),
        16: ('return_body', 'bool'),
    },
    'IndexReply': {
        1: ('keys', ['bytes']), 2: ('results', ['Pair']), 3: ('continuation', 'bytes'),
        4: ('done', 'bool'),
    },
    'ObjectsRequest': {
        1: ('bucket', 'bytes'), 2: ('start_key', 'bytes'), 3: ('end_key', 'bytes'),
        4: ('start_incl', 'bool'), 5: ('end_incl', 'bool'), 6: ('continuation', 'bytes'),
        7: ('max_results', 'int'), 8: ('timeout', 'int'), 9: ('type', 'bytes'),
        10: ('cover_context', 'bytes'),
    },
    'ObjectsReply': {
        1: ('objects', ['IndexedObject']), 2: ('continuation', 'bytes'), 3: ('done', 'bool'),
    },
    'IndexedObject': {1: ('key', 'bytes'), 2: ('object', 'GetReply')},
    'PreferenceListRequest': {1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('type', 'bytes')},
    'PreferenceListReply': {1: ('preflist', ['Place'])},
    'Place': {1: ('partition', 'int'), 2: ('node', 'bytes'), 3: ('primary', 'bool')},
    'CoverageRequest': {1: ('type', 'bytes'), 2: ('bucket', 'bytes')},
    'AuthRequest': {1: ('user', 'bytes'), 2: ('password', 'bytes')},
    'FetchRequest': {1: ('queuename', 'bytes'), 2: ('encoding', 'bytes')},
    'SearchRequest': {1: ('q', 'bytes'), 2: ('index', 'bytes')},
    'Empty': {},
}

REQUESTS = {
    1: 'Empty', 3: 'Empty', 5: 'ClientId', 7: 'Empty', 9: 'GetRequest', 11: 'PutRequest',
    13: 'DeleteRequest', 15: 'ListBucketsRequest', 17: 'ListKeysRequest', 19: 'BucketRequest',
    21: 'SetBucketRequest', 25: 'IndexRequest', 27: 'SearchRequest', 29: 'BucketRequest',
    31: 'TypeRequest', 32: 'SetTypeRequest', 33: 'PreferenceListRequest',
    40: 'ObjectsRequest', 54: 'Empty',
    70: 'CoverageRequest', 202: 'FetchRequest', 206: 'Empty', 253: 'AuthRequest',
}

REPLIES = {
    0: 'Error', 4: 'ClientId', 8: 'ServerInfo', 10: 'GetReply', 12: 'PutReply',
    16: 'ListBucketsReply', 18: 'ListKeysReply', 20: 'PropertiesReply', 26: 'IndexReply',
    34: 'PreferenceListReply', 41: 'ObjectsReply',
}


def encode(message, fields, to_bytes):
    """The bytes of a message; `to_bytes` makes bytes of the transcript's form of them."""
    numbers = {name: (number, kind) for number, (name, kind) in MESSAGES[message].items()}
    encoded = bytearray()
    for name, given in fields.items():
        number, kind = numbers[name]
        repeats = isinstance(kind, list)
        for value in given if repeats else [given]:
            of_kind = kind[0] if repeats else kind
            if of_kind in ('int', 'bool'):
                encoded += varint(number << 3) + varint(int(value))
                continue
            piece = to_bytes(value) if of_kind == 'bytes' else encode(of_kind, value, to_bytes)
            encoded += varint(number << 3 | 2) + varint(len(piece)) + piece
    return bytes(encoded)


def decode(message, encoded):
    """The fields of a message; one that is not known is named by its number."""
    known = MESSAGES.get(message, {})
    fields, at = {}, 0
    while at < len(encoded):
        tag, at = read_varint(encoded, at)
        number, wire = tag >> 3, tag & 7
        name, kind = known.get(number, (f'field {number}', 'bytes' if wire == 2 else 'int'))
        of_kind = kind[0] if isinstance(kind, list) else kind
        if wire == 2:
            length, at = read_varint(encoded, at)
            value, at = encoded[at:at + length], at + length
            value = show(value) if of_kind == 'bytes' else decode(of_kind, value)
        elif wire == 0:
            value, at = read_varint(encoded, at)
            value = bool(value) if of_kind == 'bool' else value
        else:
            raise ValueError(f'wire type {wire} in {message}')
        if isinstance(kind, list):
            fields.setdefault(name, []).append(value)
        else:
            fields[name] = value
    return fields


def show(raw):
    """Bytes in the transcript's form."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return {'hex': raw.hex()}
    is_printable = all(ord(letter) >= 32 or letter in '\n\r\t' for letter in text)
    return text if is_printable else {'hex': raw.hex()}


def varint(number):
    encoded = bytearray()
    while number > 0x7f:
        encoded.append(number & 0x7f | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_varint(encoded, at):
    number = shift = 0
    while True:
        byte = encoded[at]
        number |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
