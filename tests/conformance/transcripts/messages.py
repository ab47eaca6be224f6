"""Messages of the protocol-buffer interface as dictionaries: fields by name, in both directions.

Only the messages that the transcripts use are here. A field's kind is `bytes`, `int`, `signed` (an
integer in zigzag) or `bool`, or the name of a message; a list of one kind is a field that repeats. Bytes
are shown as text where they are printable UTF-8, and as {"hex": ...} otherwise.
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
    'MapReduceRequest': {1: ('request', 'bytes'), 2: ('content_type', 'bytes')},
    'MapReduceReply': {1: ('phase', 'int'), 2: ('response', 'bytes'), 3: ('done', 'bool')},
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
    'CounterUpdate': {
        1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('amount', 'signed'), 4: ('w', 'int'),
        5: ('dw', 'int'), 6: ('pw', 'int'), 7: ('returnvalue', 'bool'), 8: ('node_confirms', 'int'),
    },
    'CounterRequest': {
        1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('r', 'int'), 4: ('pr', 'int'),
        5: ('basic_quorum', 'bool'), 6: ('notfound_ok', 'bool'), 7: ('node_confirms', 'int'),
    },
    'CounterReply': {1: ('value', 'signed')},
    'MapField': {1: ('name', 'bytes'), 2: ('type', 'int')},
    'MapEntry': {
        1: ('field', 'MapField'), 2: ('counter_value', 'signed'), 3: ('set_value', ['bytes']),
        4: ('register_value', 'bytes'), 5: ('flag_value', 'bool'), 6: ('map_value', ['MapEntry']),
    },
    'FetchValueRequest': {
        1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('type', 'bytes'), 4: ('r', 'int'),
        5: ('pr', 'int'), 6: ('basic_quorum', 'bool'), 7: ('notfound_ok', 'bool'),
        8: ('timeout', 'int'), 9: ('sloppy_quorum', 'bool'), 10: ('n_val', 'int'),
        11: ('include_context', 'bool'), 12: ('node_confirms', 'int'),
    },
    'Value': {
        1: ('counter_value', 'signed'), 2: ('set_value', ['bytes']),
        3: ('map_value', ['MapEntry']), 4: ('hll_value', 'int'), 5: ('gset_value', ['bytes']),
    },
    'FetchValueReply': {1: ('context', 'bytes'), 2: ('type', 'int'), 3: ('value', 'Value')},
    'CounterOperation': {1: ('increment', 'signed')},
    'SetOperation': {1: ('adds', ['bytes']), 2: ('removes', ['bytes'])},
    'Additions': {1: ('adds', ['bytes'])},
    'FieldUpdate': {
        1: ('field', 'MapField'), 2: ('counter_op', 'CounterOperation'),
        3: ('set_op', 'SetOperation'), 4: ('register_op', 'bytes'), 5: ('flag_op', 'int'),
        6: ('map_op', 'MapOperation'),
    },
    'MapOperation': {1: ('removes', ['MapField']), 2: ('updates', ['FieldUpdate'])},
    'Operation': {
        1: ('counter_op', 'CounterOperation'), 2: ('set_op', 'SetOperation'),
        3: ('map_op', 'MapOperation'), 4: ('hll_op', 'Additions'), 5: ('gset_op', 'Additions'),
    },
    'UpdateValueRequest': {
        1: ('bucket', 'bytes'), 2: ('key', 'bytes'), 3: ('type', 'bytes'), 4: ('context', 'bytes'),
        5: ('op', 'Operation'), 6: ('w', 'int'), 7: ('dw', 'int'), 8: ('pw', 'int'),
        9: ('return_body', 'bool'), 10: ('timeout', 'int'), 11: ('sloppy_quorum', 'bool'),
        12: ('n_val', 'int'), 13: ('include_context', 'bool'), 14: ('node_confirms', 'int'),
    },
    'UpdateValueReply': {
        1: ('key', 'bytes'), 2: ('context', 'bytes'), 3: ('counter_value', 'signed'),
        4: ('set_value', ['bytes']), 5: ('map_value', ['MapEntry']), 6: ('hll_value', 'int'),
        7: ('gset_value', ['bytes']),
    },
    'Empty': {},
}

REQUESTS = {
    1: 'Empty', 3: 'Empty', 5: 'ClientId', 7: 'Empty', 9: 'GetRequest', 11: 'PutRequest',
    13: 'DeleteRequest', 15: 'ListBucketsRequest', 17: 'ListKeysRequest', 19: 'BucketRequest',
    21: 'SetBucketRequest', 23: 'MapReduceRequest', 25: 'IndexRequest', 27: 'SearchRequest', 29: 'BucketRequest',
    31: 'TypeRequest', 32: 'SetTypeRequest', 33: 'PreferenceListRequest',
    40: 'ObjectsRequest', 50: 'CounterUpdate', 52: 'CounterRequest', 54: 'Empty',
    70: 'CoverageRequest', 80: 'FetchValueRequest', 82: 'UpdateValueRequest', 202: 'FetchRequest', 206: 'Empty', 253: 'AuthRequest',
}

REPLIES = {
    0: 'Error', 4: 'ClientId', 8: 'ServerInfo', 10: 'GetReply', 12: 'PutReply',
    16: 'ListBucketsReply', 18: 'ListKeysReply', 20: 'PropertiesReply', 24: 'MapReduceReply',
    26: 'IndexReply',
    34: 'PreferenceListReply', 41: 'ObjectsReply', 51: 'CounterReply', 53: 'CounterReply',
    81: 'FetchValueReply', 83: 'UpdateValueReply',
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
            if of_kind in ('int', 'signed', 'bool'):
                value = zigzag(value) if of_kind == 'signed' else int(value)
                encoded += varint(number << 3) + varint(value)
                continue
            piece = to_bytes(value) if of_kind == 'bytes' else encode(of_kind, value, to_bytes)
            encoded += varint(number << 3 | 2) + varint(len(piece)) + piece
    return bytes(encoded)


def zigzag(value):
    return value << 1 if value >= 0 else (-value << 1) - 1


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
            if of_kind == 'signed':
                value = value >> 1 ^ -(value & 1)
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
