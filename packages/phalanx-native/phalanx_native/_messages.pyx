# cython: language_level=3
"""Messages of other systems' clients: bytes to frames, and entries to frames."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from phalanx_native._bytes cimport data_of, little_at, put_little

cdef enum:
    FRAME_HEAD = 6
    HASH = 4
    FINAL = 1 << 13
    BEGIN_STRUCTURE = 1 << 12
    END_STRUCTURE = 1 << 11
    IS_NULL = 1 << 10
    UNFRAGMENTED = 1 << 15 | 1 << 14
    LONGEST_FRAME = 0x7FFFFFFF


def whole_message(bytes data not None, Py_ssize_t at, Py_ssize_t most, Py_ssize_t max_frames, begin, end, null):
    """The frames of a message that has arrived whole, and where it ends: `phalanx_protocols.hazelcast.frames.whole_message`."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data), total = 0, length
    cdef const uint8_t *head
    cdef unsigned int flags = 0
    cdef list frames = []
    while size - at >= FRAME_HEAD:
        head = data_of(data) + at
        length = little_at(head)
        flags = head[4] | <unsigned int>head[5] << 8
        if length < FRAME_HEAD or length > size - at or total + length > most or len(frames) >= max_frames:
            return None
        if total == 0 and flags & UNFRAGMENTED != UNFRAGMENTED:
            return None
        if not flags & (BEGIN_STRUCTURE | END_STRUCTURE | IS_NULL):
            frames.append(PyBytes_FromStringAndSize(<const char*>head + FRAME_HEAD, length - FRAME_HEAD))
        else:
            frames.append(begin if flags & BEGIN_STRUCTURE else end if flags & END_STRUCTURE else null)
        at += length
        total += length
        if flags & FINAL:
            return frames, at
    return None


cdef inline uint8_t* put_frame(uint8_t *to, bytes data) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    put_little(to, <unsigned int>(FRAME_HEAD + HASH + size))
    to[4] = to[5] = to[6] = to[7] = to[8] = to[9] = 0
    memcpy(to + FRAME_HEAD + HASH, PyBytes_AS_STRING(data), size)
    return to + FRAME_HEAD + HASH + size


def present_frames(keys, values):
    """The frames of entries, but of those without a value: `phalanx_protocols.hazelcast.data.present_frames`."""
    cdef tuple own = tuple(keys), their = tuple(values)
    cdef Py_ssize_t many = len(own), place, size = 0
    if many != len(their):
        raise ValueError(f"{many} keys and {len(their)} values")
    for place in range(many):
        if their[place] is not None:
            size += PyBytes_GET_SIZE(<bytes?>own[place]) + PyBytes_GET_SIZE(<bytes?>their[place])
            size += 2 * (FRAME_HEAD + HASH)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *to = data_of(made)
    for place in range(many):
        if their[place] is not None:
            to = put_frame(put_frame(to, <bytes>own[place]), <bytes>their[place])
    return made
