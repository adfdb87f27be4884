# cython: language_level=3
"""What both modules are made of: numbers as bytes, the hash of a key, allocation."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.list cimport PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef enum:
    TYPE_ID_BYTES = 4
    HEAD_BYTES = 8
    INT_BYTES = 12
    NUMBER_BYTES = 4
    INT_TYPE_ID = -8
    STR_TYPE_ID = -11
    BYTES_TYPE_ID = -12
    LONGEST = 0x7FFFFFFF  # a length is a signed number of four bytes


# Numbers as bytes, whatever the byte order of the machine.


cdef inline void put_big(uint8_t* to, uint32_t number) noexcept:
    to[0] = <uint8_t>(number >> 24)
    to[1] = <uint8_t>(number >> 16)
    to[2] = <uint8_t>(number >> 8)
    to[3] = <uint8_t>number


cdef inline uint32_t big_at(const uint8_t* at) noexcept:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline void put_little(uint8_t* to, uint32_t number) noexcept:
    to[0] = <uint8_t>number
    to[1] = <uint8_t>(number >> 8)
    to[2] = <uint8_t>(number >> 16)
    to[3] = <uint8_t>(number >> 24)


cdef inline uint32_t little_at(const uint8_t* at) noexcept:
    return <uint32_t>at[3] << 24 | <uint32_t>at[2] << 16 | <uint32_t>at[1] << 8 | at[0]


cdef inline uint8_t* data_of(bytes data) noexcept:
    return <uint8_t*>PyBytes_AS_STRING(data)


cdef inline void put_item(list to, Py_ssize_t place, object item):
    Py_INCREF(item)  # the list takes a reference over
    PyList_SET_ITEM(to, place, item)


# The partition of each key: murmur3 x86 32.


cdef inline uint32_t rotated(uint32_t word, int by) noexcept:
    return word << by | word >> (32 - by)


cdef inline uint32_t scrambled(uint32_t word) noexcept:
    return rotated(word * <uint32_t>0xCC9E2D51, 15) * <uint32_t>0x1B873593


cdef inline uint32_t murmur3(const uint8_t* data, Py_ssize_t size, uint32_t state) noexcept:
    cdef Py_ssize_t at = 0, whole = size // 4 * 4
    cdef uint32_t rest = 0
    while at < whole:
        state = rotated(state ^ scrambled(little_at(data + at)), 13) * 5 + <uint32_t>0xE6546B64
        at += 4
    if at < size:
        while size > at:
            size -= 1
            rest = rest << 8 | data[size]
        state ^= scrambled(rest)
    return state


cdef inline uint32_t finished(uint32_t state, uint32_t size) noexcept:
    state ^= size
    state = (state ^ state >> 16) * <uint32_t>0x85EBCA6B
    state = (state ^ state >> 13) * <uint32_t>0xC2B2AE35
    return state ^ state >> 16


cdef inline uint32_t partition_of_payload(const uint8_t* payload, Py_ssize_t size, uint32_t count, uint32_t seed) noexcept:
    cdef int64_t hashed = <int64_t><int>finished(murmur3(payload, size, seed), <uint32_t>size)
    return <uint32_t>((-hashed if hashed < 0 else hashed) & 0x7FFFFFFF) % count


cdef inline uint8_t* put_item_of_row(uint8_t* at, uint8_t* size_at, const uint8_t* item, Py_ssize_t size) noexcept:
    put_little(size_at, <uint32_t>size)
    memcpy(at, item, size)
    return at + size
