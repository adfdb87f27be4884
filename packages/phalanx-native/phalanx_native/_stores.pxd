# cython: language_level=3
"""The stores of a member as compiled code sees them: the slots of their objects, and the class that knows where they are."""

from cpython.dict cimport PyDict_CheckExact, PyDict_Size
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint32_t

cdef extern from "Python.h":
    PyObject* PyDict_GetItemWithError(PyObject*, PyObject*) except? NULL
    PyObject* Py_TYPE(PyObject*)
    PyObject* Py_True
    void Py_DECREF(PyObject*)


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


cdef inline bint is_true(PyObject* of, Py_ssize_t offset) noexcept:
    """Whether a slot has True."""
    return slot(of, offset)[0] == Py_True


cdef class Replicas:
    cdef PyObject *replica_type
    cdef PyObject *store_type
    cdef object kinds  # keeps the types alive
    cdef Py_ssize_t maps, seq, entries, expires_at, order, tombstones, observers, eviction_order, held_bytes, accesses, idle
    cdef Py_ssize_t store_plain

    cdef int keep_in(self, PyObject* replica, PyObject* store, object key, bytes stored, Py_ssize_t skip) except -1
    cdef int count_write(self, PyObject* replica) except -1


cdef class Stores(Replicas):
    cdef PyObject *owned_type
    cdef Py_ssize_t replica, owned_plain

    cdef bint find_owned(self, list owned, tuple keys, uint32_t seed, PyObject** holders) except -1
    cdef PyObject* store_of(self, PyObject* owned, str name) except? NULL
    cdef list values_of(
        self,
        PyObject** holders,
        tuple given,
        str name,
        int64_t now,
        Py_ssize_t max_bytes,
        Py_ssize_t prefix_bytes,
    )
    cdef bint find_stored(
        self, PyObject** holders, tuple keys, str name, int64_t now, Py_ssize_t first, Py_ssize_t end
    ) except -1
    cdef bint find_stores(self, PyObject** holders, PyObject** stores, Py_ssize_t many, str name) except -1
    cdef bytes put_one(self, PyObject* holder, PyObject* store, object key, bytes value, bytes prefix)
    cdef int keep(self, PyObject* holder, PyObject* store, object key, bytes stored, Py_ssize_t skip) except -1


cdef Py_ssize_t offset_of(type kind, str name) except -1
