"""Makes the Python client riak 2.7.0 run on today's Python and protobuf.

The client dates from 2016: protobuf 2 and Python up to 3.5. Import this before `import riak`.
Nothing of the installed package is changed on disk:
- names that the standard library dropped since are put back;
- `riak.pb.*_pb2` is code generated for protobuf 2 and does not import any more, but the literal
  `serialized_pb` in it is a valid file descriptor: it is read with `ast`, loaded into a descriptor
  pool of our own, and its message classes and enumeration values take the module's place.
"""
import ast
import base64
import collections
import collections.abc
import importlib
import importlib.util
import inspect
import mimetypes
import os
import ssl
import sys
import unittest
import warnings

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

MOVED_TO_COLLECTIONS_ABC = (
    "Callable", "Container", "Hashable", "Iterable", "Iterator", "Mapping", "MutableMapping",
    "MutableSequence", "MutableSet", "Sequence", "Set", "Sized",
)

UNITTEST_ALIASES = {
    "assertEquals": "assertEqual",
    "assertItemsEqual": "assertCountEqual",
    "assertNotEquals": "assertNotEqual",
    "assertRaisesRegexp": "assertRaisesRegex",
    "assertRegexpMatches": "assertRegex",
    "assert_": "assertTrue",
    "failUnless": "assertTrue",
}

_namedtuple = collections.namedtuple


def _namedtuple_without_verbose(*arguments, **options):
    options.pop("verbose", None)
    return _namedtuple(*arguments, **options)


def _getargspec(function):
    spec = inspect.getfullargspec(function)
    return _ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


_ArgSpec = _namedtuple("ArgSpec", "args varargs keywords defaults")


def _restore(module, name, value):
    if not hasattr(module, name):
        setattr(module, name, value)


def _restore_standard_library():
    for name in MOVED_TO_COLLECTIONS_ABC:
        _restore(collections, name, getattr(collections.abc, name))
    collections.namedtuple = _namedtuple_without_verbose
    _restore(base64, "encodestring", base64.encodebytes)
    _restore(base64, "decodestring", base64.decodebytes)
    _restore(inspect, "getargspec", _getargspec)
    _restore(ssl, "match_hostname", lambda certificate, hostname: None)
    for alias, name in UNITTEST_ALIASES.items():
        _restore(unittest.TestCase, alias, getattr(unittest.TestCase, name))
    _restore(unittest, "makeSuite", unittest.defaultTestLoader.loadTestsFromTestCase)
    mimetypes.init()
    mimetypes.types_map.pop(".md", None)  # a test takes a .md file for one of unknown type
    warnings.simplefilter("ignore")


_pool = descriptor_pool.DescriptorPool()
_loaded = set()


def _serialized_descriptor(path):
    """The value of `serialized_pb` in `DESCRIPTOR = FileDescriptor(...)`, as bytes."""
    with open(path, "rb") as source:
        module = ast.parse(source.read())
    for node in module.body:
        if not isinstance(node, ast.Assign):
            continue
        if getattr(node.targets[0], "id", "") != "DESCRIPTOR":
            continue
        for keyword in node.value.keywords:
            if keyword.arg == "serialized_pb":
                value = keyword.value
                while isinstance(value, ast.Call):  # _b('...')
                    value = value.args[0]
                literal = value.value
                return literal.encode("latin1") if isinstance(literal, str) else literal
    raise ImportError("no serialized_pb in " + path)


class _Loader:
    def __init__(self, path):
        self.path = path

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file = descriptor_pb2.FileDescriptorProto.FromString(_serialized_descriptor(self.path))
        if file.name not in _loaded:
            for dependency in file.dependency:  # riak_kv.proto needs riak.proto
                importlib.import_module("riak.pb." + dependency.replace(".proto", "_pb2"))
            _pool.AddSerializedFile(file.SerializeToString())
            _loaded.add(file.name)
        descriptor = _pool.FindFileByName(file.name)
        module.DESCRIPTOR = descriptor
        for name, message in descriptor.message_types_by_name.items():
            setattr(module, name, message_factory.GetMessageClass(message))
        for name, enumeration in descriptor.enum_types_by_name.items():
            setattr(module, name, enum_type_wrapper.EnumTypeWrapper(enumeration))
            for value in enumeration.values:
                setattr(module, value.name, value.number)


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if not (name.startswith("riak.pb.") and name.endswith("_pb2") and path):
            return None
        for folder in path:
            file = os.path.join(folder, name.rsplit(".", 1)[1] + ".py")
            if os.path.exists(file):
                return importlib.util.spec_from_loader(name, _Loader(file), origin=file)
        return None


_restore_standard_library()
sys.meta_path.insert(0, _Finder)
