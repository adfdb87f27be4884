# cython: language_level=3
"""Commands of Redis clients on strings that are here: read from the bytes of a client, carried out and answered in one loop.

Only what needs nothing else is carried out: GET, SET without options, and INCR, of keys whose partition is owned here and has no other
replica, where the map expects nothing of a write but to set the entry. The loop ends before the first command that is anything
else, also before one that is broken, unusual or not whole: functions in Python take it from there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact
from cpython.list cimport PyList_GET_ITEM
from cpython.long cimport PyLong_AsLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from phalanx_native._bytes cimport (
    BYTES_TYPE_ID,
    HEAD_BYTES,
    TYPE_ID_BYTES,
    data_of,
    partition_of_payload,
    put_big,
)
from phalanx_native._stores cimport Py_TYPE, PyDict_GetItemWithError, Stores, is_empty, is_true, slot

cdef enum:
    STAMP_BYTES = 8
    MOST_DIGITS = 9  # of a length
    MOST_WORDS = 3
    NUMBER_DIGITS = 20  # of an integer of 64 bits, with its sign
    FIRST_BYTES = 512

cdef enum Outcome:
    DONE
    OTHERWISE  # something else has to carry it out
    ELSEWHERE  # the owner of the partition, or another replica, has to know of it

cdef enum:  # kinds of commands
    GET = 0
    SET = 1
    INCREMENT = 2


cdef struct Words:
    Py_ssize_t count
    const uint8_t *at[MOST_WORDS]
    Py_ssize_t size[MOST_WORDS]


cdef const uint8_t* number_at(const uint8_t* at, const uint8_t* end, Py_ssize_t* number) noexcept:
    """Read the digits of a length and the end of its line. Return the place behind it; NULL: it is something else."""
    cdef const uint8_t *first = at
    number[0] = 0
    while at < end and c'0' <= at[0] <= c'9' and at - first < MOST_DIGITS:
        number[0] = number[0] * 10 + (at[0] - c'0')
        at += 1
    if at == first or end - at < 2 or at[0] != c'\r' or at[1] != c'\n':
        return NULL
    return at + 2


cdef const uint8_t* words_at(const uint8_t* at, const uint8_t* end, Words* words) noexcept:
    """Read a command of two or three words. Return the place behind it; NULL: it is something else, or not whole."""
    cdef Py_ssize_t place
    if end - at < 4 or at[0] != c'*':
        return NULL
    at = number_at(at + 1, end, &words.count)
    if at == NULL or not 2 <= words.count <= MOST_WORDS:
        return NULL
    for place in range(words.count):
        if at >= end or at[0] != c'$':
            return NULL
        at = number_at(at + 1, end, &words.size[place])
        if at == NULL or end - at < words.size[place] + 2:
            return NULL
        words.at[place] = at
        at += words.size[place]
        if at[0] != c'\r' or at[1] != c'\n':
            return NULL
        at += 2
    return at


cdef inline bint says(const Words* words, const char* name, Py_ssize_t size) noexcept:
    """Whether the first word is this name, in letters of any case."""
    cdef Py_ssize_t place
    if words.size[0] != size:
        return False
    for place in range(size):
        if words.at[0][place] | 0x20 != <uint8_t>name[place]:
            return False
    return True


cdef bint integer_in(const uint8_t* at, Py_ssize_t size, int64_t* number) noexcept:
    """Read an integer of 64 bits as it is always written: without a plus, spaces, or zeros in front."""
    cdef uint64_t found = 0, limit = <uint64_t>0x7FFFFFFFFFFFFFFF
    cdef bint is_negative = size > 0 and at[0] == c'-'
    cdef Py_ssize_t place = 1 if is_negative else 0
    cdef uint8_t digit
    if not 0 < size - place < NUMBER_DIGITS or (at[place] == c'0' and size > 1):
        return False
    limit += is_negative
    while place < size:
        if not c'0' <= at[place] <= c'9':
            return False
        digit = at[place] - c'0'
        if found > (limit - digit) // 10:
            return False
        found = found * 10 + digit
        place += 1
    number[0] = <int64_t>(0 - found) if is_negative else <int64_t>found
    return True


cdef Py_ssize_t put_number(uint8_t* to, int64_t number) noexcept:
    """Write an integer; return how many bytes it has."""
    cdef uint8_t digits[NUMBER_DIGITS]
    cdef Py_ssize_t first = NUMBER_DIGITS, sign = 1 if number < 0 else 0
    cdef uint64_t left = 0 - <uint64_t>number if sign else <uint64_t>number
    while first == NUMBER_DIGITS or left:
        first -= 1
        digits[first] = <uint8_t>(c'0' + left % 10)
        left //= 10
    if sign:
        to[0] = c'-'
    memcpy(to + sign, digits + first, NUMBER_DIGITS - first)
    return NUMBER_DIGITS - first + sign


cdef class Answers:
    """Bytes that grow."""

    cdef uint8_t *data
    cdef Py_ssize_t size, room

    def __cinit__(self):
        self.data = <uint8_t*>PyMem_Malloc(FIRST_BYTES)
        if self.data == NULL:
            raise MemoryError()
        self.room = FIRST_BYTES

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef uint8_t* more(self, Py_ssize_t size) except NULL:
        """Return the place for so many bytes; `size` counts what is written there."""
        cdef uint8_t *grown
        if self.room - self.size < size:
            grown = <uint8_t*>PyMem_Realloc(self.data, 2 * (self.size + size))
            if grown == NULL:
                raise MemoryError()
            self.data, self.room = grown, 2 * (self.size + size)
        return self.data + self.size

    cdef int put(self, const void* data, Py_ssize_t size) except -1:
        memcpy(self.more(size), data, size)
        self.size += size
        return 0

    cdef int put_line(self, uint8_t mark, int64_t number) except -1:
        """Write a mark, an integer, and the end of the line."""
        cdef uint8_t *to = self.more(NUMBER_DIGITS + 3)
        cdef Py_ssize_t size
        to[0] = mark
        size = 1 + put_number(to + 1, number)
        to[size] = c'\r'
        to[size + 1] = c'\n'
        self.size += size + 2
        return 0

    cdef int put_bulk(self, const uint8_t* text, Py_ssize_t size) except -1:
        self.put_line(c'$', size)
        self.put(text, size)
        return self.put(b"\r\n", 2)


cdef bytes bytes_data(const uint8_t* payload, Py_ssize_t size, Py_ssize_t skip):
    """Bytes as they are serialised, behind `skip` bytes that are to be written."""
    cdef bytes data = PyBytes_FromStringAndSize(NULL, skip + HEAD_BYTES + size)
    cdef uint8_t *at = data_of(data) + skip
    put_big(at, <uint32_t>BYTES_TYPE_ID)
    put_big(at + TYPE_ID_BYTES, <uint32_t>size)
    memcpy(at + HEAD_BYTES, payload, size)
    return data


cdef inline bint is_bytes(const uint8_t* value, Py_ssize_t size) noexcept:
    """Whether a serialised value is bytes, and as long as it says."""
    cdef uint32_t kind
    if size < HEAD_BYTES:
        return False
    kind = <uint32_t>value[0] << 24 | <uint32_t>value[1] << 16 | <uint32_t>value[2] << 8 | value[3]
    return kind == <uint32_t>BYTES_TYPE_ID


cdef inline bint lacks(PyObject* store, Py_ssize_t offset, object key) except -1:
    """Whether a slot has a dictionary that does not hold the key."""
    cdef PyObject *held = slot(store, offset)[0]
    if held == NULL or not PyDict_CheckExact(<object>held):
        return False
    return is_empty(store, offset) or PyDict_GetItemWithError(held, <PyObject*>key) == NULL


cdef class Commands(Stores):
    """The loop, for objects of these classes."""

    def carry_out(
        self,
        list owned not None,
        str name not None,
        bytes data not None,
        Py_ssize_t start,
        Py_ssize_t most,
        Py_ssize_t most_bytes,
        bytes nil not None,
        int64_t now,
        uint64_t stamp,
        bint may_write,
        Py_ssize_t max_key,
        Py_ssize_t max_value,
        uint32_t seed,
        list log_keys=None,
        list log_values=None,
    ):
        """Carry out the first commands: `Leader.commit_commands` of `phalanx.grid`.

        `log_keys`, `log_values`: get the entries that were set, in the order of the writes; None: nobody wants them.
        """
        cdef const uint8_t *begin = data_of(data)
        cdef const uint8_t *end = begin + PyBytes_GET_SIZE(data)
        cdef const uint8_t *at = begin + start
        cdef const uint8_t *after
        cdef Answers answers = Answers()
        cdef Words words
        cdef int kind, last = GET
        cdef Py_ssize_t counts[3]
        cdef Outcome outcome
        cdef Py_ssize_t partition = 0, elsewhere = -1
        counts[GET] = counts[SET] = counts[INCREMENT] = 0
        if (log_keys is None) != (log_values is None):
            raise TypeError("keys and values go to a log together")
        if not 0 <= start <= PyBytes_GET_SIZE(data) or not len(owned):
            return start, b"", 0, 0, 0, GET, -1
        while most > 0 and answers.size < most_bytes:
            after = words_at(at, end, &words)
            if after == NULL:
                break
            if words.count == 2 and says(&words, b"get", 3):
                kind = GET
            elif words.count == 3 and says(&words, b"set", 3):
                kind = SET
            elif words.count == 2 and says(&words, b"incr", 4):
                kind = INCREMENT
            else:
                break
            if kind != GET and not may_write:
                break
            outcome = self.carry_out_one(
                owned, name, kind, &words, answers, nil, now, stamp + counts[SET] + counts[INCREMENT], max_key, max_value, seed,
                &partition, log_keys, log_values,
            )
            if outcome != DONE:
                if outcome == ELSEWHERE:
                    elsewhere = partition
                break
            counts[kind] += 1
            last = kind
            at = after
            most -= 1
        return (
            at - begin,
            PyBytes_FromStringAndSize(<char*>answers.data, answers.size),
            counts[GET],
            counts[SET],
            counts[INCREMENT],
            last,
            elsewhere,
        )

    cdef Outcome carry_out_one(
        self,
        list owned,
        str name,
        int kind,
        const Words* words,
        Answers answers,
        bytes nil,
        int64_t now,
        uint64_t stamp,
        Py_ssize_t max_key,
        Py_ssize_t max_value,
        uint32_t seed,
        Py_ssize_t* partition,
        list log_keys,
        list log_values,
    ) except *:
        cdef bytes key = bytes_data(words.at[1], words.size[1], 0)
        partition[0] = partition_of_payload(
            data_of(key) + TYPE_ID_BYTES, PyBytes_GET_SIZE(key) - TYPE_ID_BYTES, <uint32_t>len(owned), seed
        )
        cdef PyObject *holder = <PyObject*>PyList_GET_ITEM(owned, partition[0])
        cdef PyObject *store
        if holder == <PyObject*>None:
            return ELSEWHERE
        if Py_TYPE(holder) != self.owned_type or Py_TYPE(slot(holder, self.replica)[0]) != self.replica_type:
            return OTHERWISE
        store = self.store_of(holder, name)
        if store != NULL and Py_TYPE(store) != self.store_type:
            return OTHERWISE
        if kind == GET:
            return self.get(store, key, answers, nil, now)
        if not is_true(holder, self.owned_plain):
            return ELSEWHERE
        if store == NULL or PyBytes_GET_SIZE(key) > max_key or not self.takes_writes(store, key):
            return OTHERWISE
        if kind == SET:
            if HEAD_BYTES + words.size[2] > max_value:
                return OTHERWISE
            self.keep_text(holder, store, key, words.at[2], words.size[2], stamp, log_keys, log_values)
            answers.put(b"+OK\r\n", 5)
            return DONE
        return self.increment(holder, store, key, answers, stamp, max_value, log_keys, log_values)

    cdef Outcome get(self, PyObject* store, bytes key, Answers answers, bytes nil, int64_t now) except *:
        cdef PyObject *stored = NULL
        cdef PyObject *until
        cdef const uint8_t *value
        cdef Py_ssize_t size
        if store != NULL:
            if not is_empty(store, self.idle):
                return OTHERWISE
            stored = PyDict_GetItemWithError(slot(store, self.entries)[0], <PyObject*>key)
            if stored != NULL and not is_empty(store, self.expires_at):
                until = PyDict_GetItemWithError(slot(store, self.expires_at)[0], <PyObject*>key)
                if until != NULL and PyLong_AsLongLong(<object>until) <= now:
                    stored = NULL
        if stored == NULL:
            answers.put(data_of(nil), PyBytes_GET_SIZE(nil))
            return DONE
        if not PyBytes_CheckExact(<object>stored):
            return OTHERWISE
        value = <const uint8_t*>PyBytes_AS_STRING(<object>stored) + STAMP_BYTES
        size = PyBytes_GET_SIZE(<object>stored) - STAMP_BYTES
        if not is_bytes(value, size):
            return OTHERWISE
        answers.put_bulk(value + HEAD_BYTES, size - HEAD_BYTES)
        return DONE

    cdef Outcome increment(
        self,
        PyObject* holder,
        PyObject* store,
        bytes key,
        Answers answers,
        uint64_t stamp,
        Py_ssize_t max_value,
        list log_keys,
        list log_values,
    ) except *:
        cdef PyObject *stored
        cdef const uint8_t *value
        cdef Py_ssize_t size
        cdef int64_t number = 0
        cdef uint8_t text[NUMBER_DIGITS]
        if not is_empty(store, self.expires_at):
            return OTHERWISE
        stored = PyDict_GetItemWithError(slot(store, self.entries)[0], <PyObject*>key)
        if stored != NULL:
            if not PyBytes_CheckExact(<object>stored):
                return OTHERWISE
            value = <const uint8_t*>PyBytes_AS_STRING(<object>stored) + STAMP_BYTES
            size = PyBytes_GET_SIZE(<object>stored) - STAMP_BYTES
            if not is_bytes(value, size) or not integer_in(value + HEAD_BYTES, size - HEAD_BYTES, &number):
                return OTHERWISE
        if number == <int64_t>0x7FFFFFFFFFFFFFFF:
            return OTHERWISE
        number += 1
        size = put_number(text, number)
        if HEAD_BYTES + size > max_value:
            return OTHERWISE
        self.keep_text(holder, store, key, text, size, stamp, log_keys, log_values)
        answers.put_line(c':', number)
        return DONE

    cdef bint takes_writes(self, PyObject* store, bytes key) except -1:
        """Whether all that is due for a write is to set the entry: nothing of this key is kept beside entries."""
        return is_true(store, self.store_plain) or (
            slot(store, self.order)[0] == <PyObject*>None
            and PyTuple_GET_SIZE(<object>slot(store, self.observers)[0]) == 0
            and slot(store, self.eviction_order)[0] == <PyObject*>None
            and slot(store, self.accesses)[0] == <PyObject*>None
            and is_empty(store, self.idle)
            and lacks(store, self.expires_at, key)
            and lacks(store, self.tombstones, key)
        )

    cdef int keep_text(
        self,
        PyObject* holder,
        PyObject* store,
        bytes key,
        const uint8_t* text,
        Py_ssize_t size,
        uint64_t stamp,
        list log_keys,
        list log_values,
    ) except -1:
        cdef bytes stored = bytes_data(text, size, STAMP_BYTES)
        put_big(data_of(stored), <uint32_t>(stamp >> 32))
        put_big(data_of(stored) + 4, <uint32_t>stamp)
        self.keep(holder, store, key, stored, STAMP_BYTES)
        if log_keys is not None:
            log_keys.append(key)
            log_values.append(stored)
        return 0
