# cython: language_level=3
"""Loops over keys of many partitions, in the stores of a member: a hash, a dictionary and a copy for each key.

The objects are Phalanx's own and have slots. A slot is read at the offset that its descriptor names, after the type of
the object has been compared: looking up an attribute by its name costs as much as all the rest. An object of another type
is nobody's fault: then the function in Python does the work. No code in Python runs within a loop, because what is stored
is `bytes` under `bytes`.
"""

from types import MemberDescriptorType

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem
from cpython.list cimport PyList_GET_ITEM, PyList_New
from cpython.long cimport PyLong_AsLongLong, PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from phalanx_native._bytes cimport TYPE_ID_BYTES, data_of, partition_of_payload, put_item

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define PHALANX_PREFETCH(at) __builtin_prefetch((const void *)(at))
    #else
    #define PHALANX_PREFETCH(at) ((void)(at))
    #endif
    #define PHALANX_TABLE_OF(dict) ((const char *)((PyDictObject *)(dict))->ma_keys)
    """
    void prefetch "PHALANX_PREFETCH" (const void*) noexcept
    const char* table_of "PHALANX_TABLE_OF" (PyObject*) noexcept

cdef enum:
    AT_ONCE = 128  # so many keys go through one loop after the other: what these read fits into a processor's cache
    LINE_BYTES = 64


cdef Py_ssize_t offset_of(type kind, str name) except -1:
    """The offset of a slot in the objects of a class."""
    cdef object descriptor = kind.__dict__[name]
    if type(descriptor) is not MemberDescriptorType:
        raise TypeError(f"{kind.__name__}.{name} is no slot")
    return (<PyMemberDescrObject*><PyObject*>descriptor).d_member.offset


cdef class Replicas:
    """Replicas and the stores of their maps, where the objects of these classes have their fields."""

    def __init__(self, type replica not None, type store not None):
        self.kinds = (replica, store)
        self.replica_type, self.store_type = <PyObject*>replica, <PyObject*>store
        self.maps, self.seq = offset_of(replica, "maps"), offset_of(replica, "seq")
        self.entries, self.expires_at, self.order = (
            offset_of(store, "entries"), offset_of(store, "expires_at"), offset_of(store, "order")
        )
        self.tombstones, self.observers = offset_of(store, "tombstones"), offset_of(store, "observers")
        self.eviction_order, self.held_bytes = offset_of(store, "eviction_order"), offset_of(store, "held_bytes")
        self.accesses, self.idle, self.store_plain = (
            offset_of(store, "accesses"), offset_of(store, "idle"), offset_of(store, "is_plain")
        )

    cdef int keep_in(self, PyObject* replica, PyObject* store, object key, bytes stored, Py_ssize_t skip) except -1:
        """Set an entry, and count it and the write. `skip`: how long the stamp of a stored value is."""
        cdef PyObject *entries = slot(store, self.entries)[0]
        cdef PyObject *before = PyDict_GetItemWithError(entries, <PyObject*>key)
        cdef Py_ssize_t grown = PyBytes_GET_SIZE(stored)
        cdef object held
        if before != NULL:
            grown -= PyBytes_GET_SIZE(<object>before)
        else:
            grown += PyBytes_GET_SIZE(key) - skip
        PyDict_SetItem(<object>entries, key, stored)
        held = PyLong_FromLongLong(PyLong_AsLongLong(<object>slot(store, self.held_bytes)[0]) + grown)
        set_number(store, self.held_bytes, held)
        return self.count_write(replica)

    cdef int count_write(self, PyObject* replica) except -1:
        cdef object seq = PyLong_FromLongLong(PyLong_AsLongLong(<object>slot(replica, self.seq)[0]) + 1)
        set_number(replica, self.seq, seq)
        return 0


cdef class Stores(Replicas):
    """The functions that know where the objects of these classes have their fields."""

    def __init__(self, type owned not None, type replica not None, type store not None):
        """`owned`, `replica`, `store`: OwnedPartition, Replica and MapStore of `phalanx.grid`."""
        super().__init__(replica, store)
        self.kinds = (owned, replica, store)
        self.owned_type = <PyObject*>owned
        self.replica, self.owned_plain = offset_of(owned, "replica"), offset_of(owned, "is_plain")

    cdef bint find_owned(self, list owned, tuple keys, uint32_t seed, PyObject** holders) except -1:
        """Find the owned partition of each key. False: one is not owned here, or not of the type that is known.

        The objects of many partitions are in no cache. Each loop reads one line of each and little else, so that the
        processor waits for many at a time.
        """
        cdef Py_ssize_t many = len(keys), place, size
        cdef uint32_t count = <uint32_t>len(owned)
        cdef bytes key
        for place in range(many):
            key = <bytes?>keys[place]
            size = max(PyBytes_GET_SIZE(key) - TYPE_ID_BYTES, 0)
            holders[place] = <PyObject*>PyList_GET_ITEM(
                owned, partition_of_payload(data_of(key) + TYPE_ID_BYTES, size, count, seed)
            )
            prefetch(holders[place])
            prefetch(slot(holders[place], self.replica))
        for place in range(many):
            if Py_TYPE(holders[place]) != self.owned_type:
                return False
            prefetch(slot(holders[place], self.replica)[0])
            prefetch(slot(slot(holders[place], self.replica)[0], self.maps))
        for place in range(many):
            if Py_TYPE(slot(holders[place], self.replica)[0]) != self.replica_type:
                return False
            prefetch(slot(slot(holders[place], self.replica)[0], self.maps)[0])
        return True

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
            if not self.find_owned(owned, given, seed, holders):
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
        cdef Py_ssize_t many = len(given), place, first, end, size, total = 0
        cdef list found = PyList_New(many)
        cdef PyObject *store
        cdef PyObject *stored
        cdef object value
        for first in range(0, many, AT_ONCE):
            end = min(first + AT_ONCE, many)
            if not self.find_stored(holders, given, name, now, first, end):
                return None
            for place in range(first, end):
                stored, value = holders[place], None
                if stored != NULL:
                    size = PyBytes_GET_SIZE(<object>stored)
                    total += size
                if total > max_bytes and place:
                    return found[:place]
                if stored != NULL:
                    size = max(size - prefix_bytes, 0)
                    value = PyBytes_FromStringAndSize(
                        PyBytes_AS_STRING(<object>stored) + PyBytes_GET_SIZE(<object>stored) - size, size
                    )
                put_item(found, place, value)
        return found

    cdef bint find_stored(
        self, PyObject** holders, tuple keys, str name, int64_t now, Py_ssize_t first, Py_ssize_t end
    ) except -1:
        """Put the stored value of each key, or NULL, in the place of its owned partition. False: a strange object.

        The dictionaries hold the values, and nothing from here to the copies runs Python code: none of them goes away.
        """
        cdef Py_ssize_t place
        cdef PyObject *store
        cdef PyObject *stored
        cdef PyObject *until
        for place in range(first, end):
            prefetch(table_of(slot(slot(holders[place], self.replica)[0], self.maps)[0]))
        for place in range(first, end):
            store = holders[place] = self.store_of(holders[place], name)
            if store != NULL:
                if Py_TYPE(store) != self.store_type:
                    return False
                prefetch(slot(store, self.entries)[0])
                prefetch(slot(store, self.expires_at)[0])
        for place in range(first, end):
            if holders[place] != NULL:
                prefetch(table_of(slot(holders[place], self.entries)[0]))
                prefetch(table_of(slot(holders[place], self.entries)[0]) + LINE_BYTES)
        for place in range(first, end):
            store = holders[place]
            if store == NULL:
                continue
            stored = PyDict_GetItemWithError(slot(store, self.entries)[0], <PyObject*>keys[place])
            if stored != NULL and not is_empty(store, self.expires_at):
                until = PyDict_GetItemWithError(slot(store, self.expires_at)[0], <PyObject*>keys[place])
                if until != NULL and PyLong_AsLongLong(<object>until) <= now:
                    stored = NULL
            if stored != NULL:
                if not PyBytes_CheckExact(<object>stored):
                    return False
                prefetch(PyBytes_AS_STRING(<object>stored) + LINE_BYTES)
            holders[place] = stored
        return True

    def put_values(
        self,
        list owned not None,
        str name not None,
        keys,
        values,
        bytes prefix not None,
        uint32_t seed,
        list log_keys=None,
        list log_values=None,
    ):
        """Store entries at once: `Leader.commit_values` of `phalanx.grid`. Also False: objects of other classes.

        `log_keys`, `log_values`: get what was set, in the order of the writes; None: nobody wants it.
        """
        cdef tuple own = tuple(keys), their = tuple(values)
        cdef Py_ssize_t many = len(own), place
        cdef PyObject **holders
        cdef bint is_done
        cdef bytes stored
        if len(their) != many:
            raise ValueError(f"{many} keys and {len(their)} values")
        if (log_keys is None) != (log_values is None):
            raise TypeError("keys and values go to a log together")
        if not len(owned):
            return False
        for place in range(many):
            <bytes?>their[place]
        holders = <PyObject**>PyMem_Malloc(2 * many * sizeof(PyObject*) + 1)
        if holders == NULL:
            raise MemoryError()
        try:
            is_done = self.find_owned(owned, own, seed, holders) and self.find_stores(holders, holders + many, many, name)
            if is_done:
                for place in range(many):
                    stored = self.put_one(holders[place], holders[many + place], own[place], <bytes>their[place], prefix)
                    if log_keys is not None:
                        log_keys.append(own[place])
                        log_values.append(stored)
        finally:
            PyMem_Free(holders)
        return is_done

    cdef bint find_stores(self, PyObject** holders, PyObject** stores, Py_ssize_t many, str name) except -1:
        """Find the store of each owned partition. False: one is not there, or something else is due for a put."""
        cdef Py_ssize_t place
        cdef PyObject *store
        for place in range(many):
            prefetch(table_of(slot(slot(holders[place], self.replica)[0], self.maps)[0]))
        for place in range(many):
            if not is_true(holders[place], self.owned_plain):
                return False
            store = stores[place] = self.store_of(holders[place], name)
            if store == NULL or Py_TYPE(store) != self.store_type:
                return False
            prefetch(slot(store, self.entries)[0])
        for place in range(many):
            store = stores[place]
            if not is_true(store, self.store_plain):
                return False
            prefetch(table_of(slot(store, self.entries)[0]))
            prefetch(table_of(slot(store, self.entries)[0]) + LINE_BYTES)
        return True

    cdef bytes put_one(self, PyObject* holder, PyObject* store, object key, bytes value, bytes prefix):
        """Set an entry, and return the stored value."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(value), skip = PyBytes_GET_SIZE(prefix)
        cdef bytes stored = PyBytes_FromStringAndSize(NULL, skip + size)
        memcpy(data_of(stored), data_of(prefix), skip)
        memcpy(data_of(stored) + skip, data_of(value), size)
        self.keep(holder, store, key, stored, skip)
        return stored

    cdef int keep(self, PyObject* holder, PyObject* store, object key, bytes stored, Py_ssize_t skip) except -1:
        """Set an entry, and count it and the write. `skip`: how long the stamp of a stored value is."""
        return self.keep_in(slot(holder, self.replica)[0], store, key, stored, skip)
