# cython: language_level=3
"""Loops over keys of many partitions, in the stores of a member: a hash, a dictionary and a copy for each key.

The objects are Phalanx's own and have slots. A slot is read at the offset that its descriptor names, after the type of
the object has been compared: looking up an attribute by its name costs as much as all the rest. An object of another type
is nobody's fault: then the function in Python does the work. No code in Python runs within a loop, because what is stored
is `bytes` under `bytes`.
"""

from types import MemberDescriptorType

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_New
from cpython.long cimport PyLong_AsLongLong, PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from phalanx_native._bytes cimport TYPE_ID_BYTES, data_of, partition_of, put_item

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(PyObject*, PyObject*) except? NULL
    PyObject* Py_TYPE(PyObject*)
    void Py_DECREF(PyObject*)


cdef Py_ssize_t offset_of(type kind, str name) except -1:
    """The offset of a slot in the objects of a class."""
    cdef object descriptor = kind.__dict__[name]
    if type(descriptor) is not MemberDescriptorType:
        raise TypeError(f"{kind.__name__}.{name} is no slot")
    return (<PyMemberDescrObject*><PyObject*>descriptor).d_member.offset


cdef inline PyObject** slot(PyObject* of, Py_ssize_t offset) noexcept:
    return <PyObject**>(<char*>of + offset)


cdef inline void set_number(PyObject* of, Py_ssize_t offset, object number):
    cdef PyObject* before = slot(of, offset)[0]
    Py_INCREF(number)
    slot(of, offset)[0] = <PyObject*>number
    Py_DECREF(before)


cdef inline bint is_empty(PyObject* of, Py_ssize_t offset):
    """Whether a slot has a dictionary without entries."""
    cdef PyObject* held = slot(of, offset)[0]
    return held != NULL and PyDict_CheckExact(<object>held) and PyDict_Size(<object>held) == 0


cdef class Stores:
    """The twins that know where the objects of these classes have their fields."""

    cdef PyObject *owned_type
    cdef PyObject *replica_type
    cdef PyObject *store_type
    cdef tuple kinds  # keeps the three alive
    cdef Py_ssize_t replica, streams, log_from, maps, seq, entries, expires_at, order, tombstones, journal, eviction_order, held_bytes

    def __init__(self, type owned not None, type replica not None, type store not None):
        """`owned`, `replica`, `store`: OwnedPartition, Replica and MapStore of `phalanx.grid`."""
        self.kinds = (owned, replica, store)
        self.owned_type, self.replica_type, self.store_type = <PyObject*>owned, <PyObject*>replica, <PyObject*>store
        self.replica, self.streams, self.log_from = (
            offset_of(owned, "replica"), offset_of(owned, "streams"), offset_of(owned, "_log_from")
        )
        self.maps, self.seq = offset_of(replica, "maps"), offset_of(replica, "seq")
        self.entries, self.expires_at, self.order = (
            offset_of(store, "entries"), offset_of(store, "expires_at"), offset_of(store, "order")
        )
        self.tombstones, self.journal = offset_of(store, "tombstones"), offset_of(store, "journal")
        self.eviction_order, self.held_bytes = offset_of(store, "eviction_order"), offset_of(store, "held_bytes")

    cdef PyObject* owned_at(self, list owned, bytes key, uint32_t seed):
        """The owned partition of a key; NULL: it is not owned here, or not of the type that is known."""
        cdef Py_ssize_t size = max(PyBytes_GET_SIZE(key) - TYPE_ID_BYTES, 0)
        cdef uint32_t partition = partition_of(data_of(key) + TYPE_ID_BYTES, size, <uint32_t>len(owned), seed)
        cdef PyObject* found = <PyObject*>PyList_GET_ITEM(owned, partition)
        if Py_TYPE(found) != self.owned_type or Py_TYPE(slot(found, self.replica)[0]) != self.replica_type:
            return NULL
        return found

    cdef PyObject* store_of(self, PyObject* owned, str name) except? NULL:
        """The store of a map in an owned partition; NULL without an error: there is none."""
        return PyDict_GetItemWithError(slot(slot(owned, self.replica)[0], self.maps)[0], <PyObject*>name)

    def find_values(
        self,
        list owned not None,
        str name not None,
        keys,
        int64_t now,
        Py_ssize_t max_bytes,
        Py_ssize_t prefix_bytes,
        uint32_t seed,
    ):
        """The values of the first keys: `phalanx.grid.serving.many_keys.find_values`.

        Also None: some object is not of the classes that are known.
        """
        cdef tuple given = tuple(keys)
        cdef Py_ssize_t many = len(given), place
        if not len(owned):
            return None
        cdef PyObject **holders = <PyObject**>PyMem_Malloc(many * sizeof(PyObject*) + 1)
        if holders == NULL:
            raise MemoryError()
        try:
            for place in range(many):
                holders[place] = self.owned_at(owned, <bytes?>given[place], seed)
                if holders[place] == NULL:
                    return None
            # No value is copied before it is known that all may be told, and none beyond the limit: a request may name a
            # key a thousand times.
            return self.values_of(holders, given, name, now, max_bytes, prefix_bytes)
        finally:
            PyMem_Free(holders)

    cdef list values_of(
        self,
        PyObject** holders,
        tuple given,
        str name,
        int64_t now,
        Py_ssize_t max_bytes,
        Py_ssize_t prefix_bytes,
    ):
        cdef Py_ssize_t many = len(given), place, size, total = 0
        cdef list found = PyList_New(many)
        cdef PyObject *store
        cdef PyObject *stored
        cdef PyObject *until
        cdef object value
        cdef bytes key
        for place in range(many):
            key = <bytes>given[place]
            store = self.store_of(holders[place], name)
            value = None
            if store != NULL:
                if Py_TYPE(store) != self.store_type:
                    return None
                stored = PyDict_GetItemWithError(slot(store, self.entries)[0], <PyObject*>key)
                if stored != NULL and not is_empty(store, self.expires_at):
                    until = PyDict_GetItemWithError(slot(store, self.expires_at)[0], <PyObject*>key)
                    if until != NULL and PyLong_AsLongLong(<object>until) <= now:
                        stored = NULL
                if stored != NULL:
                    if not PyBytes_CheckExact(<object>stored):
                        return None
                    size = PyBytes_GET_SIZE(<object>stored)
                    total += size
                    if total <= max_bytes or not place:
                        size = max(size - prefix_bytes, 0)
                        value = PyBytes_FromStringAndSize(
                            PyBytes_AS_STRING(<object>stored) + PyBytes_GET_SIZE(<object>stored) - size, size
                        )
            if total > max_bytes and place:
                return found[:place]
            put_item(found, place, value)
        return found

    def put_values(
        self, list owned not None, str name not None, keys, values, bytes prefix not None, uint32_t seed
    ):
        """Store entries at once: `phalanx.grid.serving.many_keys.put_values`. Also False: objects of other classes."""
        cdef tuple own = tuple(keys), their = tuple(values)
        cdef Py_ssize_t many = len(own), place, size, skip = PyBytes_GET_SIZE(prefix)
        cdef PyObject **found
        cdef PyObject *holder
        cdef PyObject *store
        cdef PyObject *replica
        cdef PyObject *before
        cdef bytes value, stored
        cdef object seq, held
        if len(their) != many:
            raise ValueError(f"{many} keys and {len(their)} values")
        if not len(owned):
            return False
        found = <PyObject**>PyMem_Malloc(2 * many * sizeof(PyObject*) + 1)
        if found == NULL:
            raise MemoryError()
        try:
            for place in range(many):
                <bytes?>their[place]
                holder = self.owned_at(owned, <bytes?>own[place], seed)
                if holder == NULL or not is_empty(holder, self.streams):
                    return False
                store = self.store_of(holder, name)
                if store == NULL or Py_TYPE(store) != self.store_type:
                    return False
                if (
                    slot(store, self.order)[0] != <PyObject*>None
                    or slot(store, self.journal)[0] != <PyObject*>None
                    or slot(store, self.eviction_order)[0] != <PyObject*>None
                    or not is_empty(store, self.expires_at)
                    or not is_empty(store, self.tombstones)
                ):
                    return False
                found[2 * place], found[2 * place + 1] = holder, store
            for place in range(many):
                value = <bytes>their[place]
                size = PyBytes_GET_SIZE(value)
                stored = PyBytes_FromStringAndSize(NULL, skip + size)
                memcpy(data_of(stored), data_of(prefix), skip)
                memcpy(data_of(stored) + skip, data_of(value), size)
                store = found[2 * place + 1]
                before = PyDict_GetItemWithError(slot(store, self.entries)[0], <PyObject*>own[place])
                if before != NULL:
                    size -= PyBytes_GET_SIZE(<object>before) - skip
                else:
                    size += PyBytes_GET_SIZE(own[place])
                PyDict_SetItem(<object>slot(store, self.entries)[0], own[place], stored)
                held = PyLong_FromLongLong(PyLong_AsLongLong(<object>slot(store, self.held_bytes)[0]) + size)
                set_number(store, self.held_bytes, held)
                holder = found[2 * place]
                replica = slot(holder, self.replica)[0]
                seq = PyLong_FromLongLong(PyLong_AsLongLong(<object>slot(replica, self.seq)[0]) + 1)
                set_number(replica, self.seq, seq)
                set_number(holder, self.log_from, seq)
        finally:
            PyMem_Free(found)
        return True
