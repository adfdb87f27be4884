# cython: language_level=3
"""The records of a member's log that only set entries: read from the bytes of a block, and followed in one loop.

Two kinds are followed, as `phalanx.disk.replay` would: entries without backups (`PlainPuts`), and puts of the owner (`ReplicatePut`)
that nothing else belongs to than the outcome of the operation. The loop ends before the first record that is anything else, also
before one that is not valid, or that belongs to a store which has more to do for a put: functions in Python take it from there.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from phalanx_native._bytes cimport LONGEST, NUMBER_BYTES, TYPE_ID_BYTES, data_of, little_at, partition_of_payload
from phalanx_native._stores cimport Py_TYPE, PyDict_GetItemWithError, Replicas, is_true, offset_of, set_number, slot

cdef enum:
    STAMP_BYTES = 8
    RECORD_BYTES = 12  # of the head of a record
    PLAIN_PUTS = 4  # tags of the structs
    REPLICATE_PUT = 40
    PUT_FIELDS = 12  # of a ReplicatePut, with its tag
    OUTCOME_FIELDS = 4
    NIL = 0xC0
    FALSE = 0xC2
    TRUE = 0xC3


# MessagePack: each function returns the place behind what it has read; NULL: it is something else, or not whole.


cdef inline uint64_t big_number(const uint8_t* at, Py_ssize_t size) noexcept:
    cdef uint64_t number = 0
    cdef Py_ssize_t place
    for place in range(size):
        number = number << 8 | at[place]
    return number


cdef const uint8_t* number_at(const uint8_t* at, const uint8_t* end, uint64_t* number) noexcept:
    """Read a number that is not negative."""
    cdef Py_ssize_t size
    if at >= end:
        return NULL
    if at[0] < 0x80:
        number[0] = at[0]
        return at + 1
    if not 0xCC <= at[0] <= 0xCF:
        return NULL
    size = 1 << (at[0] - 0xCC)
    if end - at <= size:
        return NULL
    number[0] = big_number(at + 1, size)
    return at + 1 + size


cdef const uint8_t* sized_at(
    const uint8_t* at, const uint8_t* end, uint8_t short_head, uint8_t most_short, uint8_t long_head, Py_ssize_t first, Py_ssize_t* size
) noexcept:
    """Read the head of something with a size, and return the place of its content. `first`: how many bytes the size of the first long form has."""
    cdef Py_ssize_t bytes_of_size
    if at >= end:
        return NULL
    if short_head and at[0] & <uint8_t>~most_short == short_head:
        size[0] = at[0] & most_short
        return at + 1
    if at[0] < long_head or at[0] > long_head + (2 if first == 1 else 1):
        return NULL
    bytes_of_size = first << (at[0] - long_head)
    if end - at <= bytes_of_size:
        return NULL
    size[0] = <Py_ssize_t>big_number(at + 1, bytes_of_size)
    return at + 1 + bytes_of_size


cdef inline const uint8_t* list_at(const uint8_t* at, const uint8_t* end, Py_ssize_t* many) noexcept:
    return sized_at(at, end, 0x90, 0x0F, 0xDC, 2, many)


cdef inline const uint8_t* text_at(const uint8_t* at, const uint8_t* end, Py_ssize_t* size) noexcept:
    """Return the place of the content, all of which is there."""
    at = sized_at(at, end, 0xA0, 0x1F, 0xD9, 1, size)
    return at if at != NULL and end - at >= size[0] else NULL


cdef inline const uint8_t* bytes_at(const uint8_t* at, const uint8_t* end, Py_ssize_t* size) noexcept:
    """Return the place of the content, all of which is there."""
    at = sized_at(at, end, 0, 0, 0xC4, 1, size)
    return at if at != NULL and end - at >= size[0] else NULL


cdef struct PlainRows:
    Py_ssize_t many
    const uint8_t *sizes
    const uint8_t *keys
    const uint8_t *values


cdef bint rows_in(const uint8_t* data, Py_ssize_t size, PlainRows* rows) noexcept:
    """Find the parts of packed rows. False: the sizes do not fit the bytes exactly."""
    cdef Py_ssize_t left, place
    if size < NUMBER_BYTES:
        return False
    rows.many = little_at(data)
    if rows.many > (size - NUMBER_BYTES) // (2 * NUMBER_BYTES):
        return False
    rows.sizes = data + NUMBER_BYTES
    rows.keys = rows.values = rows.sizes + 2 * NUMBER_BYTES * rows.many
    left = size - NUMBER_BYTES * (1 + 2 * rows.many)
    for place in range(2 * rows.many):
        if place == rows.many:
            rows.values = rows.keys + (size - NUMBER_BYTES * (1 + 2 * rows.many) - left)
        left -= little_at(rows.sizes + NUMBER_BYTES * place)
        if left < 0:
            return False
    return left == 0


cdef class Follower(Replicas):
    """Follows records, in objects of these classes."""

    cdef PyObject *copy_type
    cdef Py_ssize_t copied, deduplication
    cdef bytes name_bytes
    cdef str name

    def __init__(self, type replica not None, type store not None, type copy not None):
        """`replica`, `store`, `copy`: Replica, MapStore and IncomingCopy of `phalanx.grid`."""
        super().__init__(replica, store)
        self.kinds = (replica, store, copy)
        self.copy_type = <PyObject*>copy
        self.copied, self.deduplication = offset_of(copy, "replica"), offset_of(replica, "deduplication")
        self.name_bytes, self.name = b"", ""

    def follow(
        self, dict replicas not None, dict copies not None, now, uint32_t seed, body not None, Py_ssize_t start, Py_ssize_t most
    ):
        """Follow the first records that begin at an offset of a block's body: `phalanx.disk.replay.Replay.take`.

        Return where the next one is, and how many were followed, at most `most`. `copies`: partition to an incoming copy that takes
        the same writes.
        """
        cdef Py_buffer view
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef const uint8_t *record_end
        cdef Py_ssize_t done = 0
        cdef uint32_t kind
        cdef bint is_followed = True
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= view.len:
                return start, 0
            at, end = <const uint8_t*>view.buf + start, <const uint8_t*>view.buf + view.len
            while done < most and end - at >= RECORD_BYTES:
                kind = little_at(at)  # and no flags, which are behind it
                if end - at - RECORD_BYTES < little_at(at + 8):
                    break
                record_end = at + RECORD_BYTES + little_at(at + 8)
                if kind == PLAIN_PUTS:
                    is_followed = self.put_plainly(at + RECORD_BYTES, record_end, replicas, copies, seed)
                elif kind == REPLICATE_PUT:
                    is_followed = self.put(at + RECORD_BYTES, record_end, replicas, copies, now)
                else:
                    break
                if not is_followed:
                    break
                at = record_end
                done += 1
            return at - <const uint8_t*>view.buf, done
        finally:
            PyBuffer_Release(&view)

    cdef str name_in(self, const uint8_t* text, Py_ssize_t size):
        """The name of a map, which is mostly that of the record before; None: it is not Unicode."""
        if size != PyBytes_GET_SIZE(self.name_bytes) or memcmp(text, data_of(self.name_bytes), size):
            try:
                self.name = PyUnicode_DecodeUTF8(<const char*>text, size, NULL)
            except UnicodeDecodeError:
                return None
            self.name_bytes = PyBytes_FromStringAndSize(<const char*>text, size)
        return self.name

    cdef bint find(self, dict replicas, dict copies, object partition, str name, PyObject** targets) except -1:
        """Find the replica of a partition and its store of a map, and the same of the copy; NULL: there is none.

        False: there is no store yet, or something else is due for a put.
        """
        cdef PyObject *copy
        targets[0] = PyDict_GetItemWithError(<PyObject*>replicas, <PyObject*>partition)
        targets[2] = NULL
        if copies:
            copy = PyDict_GetItemWithError(<PyObject*>copies, <PyObject*>partition)
            if copy != NULL:
                if Py_TYPE(copy) != self.copy_type:
                    return False
                targets[2] = slot(copy, self.copied)[0]
        return self.find_store(targets, name) and self.find_store(targets + 2, name)

    cdef bint find_store(self, PyObject** targets, str name) except -1:
        targets[1] = NULL
        if targets[0] == NULL:
            return True
        if Py_TYPE(targets[0]) != self.replica_type:
            return False
        targets[1] = PyDict_GetItemWithError(slot(targets[0], self.maps)[0], <PyObject*>name)
        return targets[1] != NULL and Py_TYPE(targets[1]) == self.store_type and is_true(targets[1], self.store_plain)

    cdef int keep_all(self, PyObject** targets, const uint8_t* key_at, Py_ssize_t key_size, const uint8_t* at, Py_ssize_t size) except -1:
        """Set an entry in what was found, and count the write."""
        cdef bytes key, stored
        if targets[0] == NULL and targets[2] == NULL:
            return 0
        key = PyBytes_FromStringAndSize(<const char*>key_at, key_size)
        stored = PyBytes_FromStringAndSize(<const char*>at, size)
        if targets[0] != NULL:
            self.keep_in(targets[0], targets[1], key, stored, STAMP_BYTES)
        if targets[2] != NULL:
            self.keep_in(targets[2], targets[3], key, stored, STAMP_BYTES)
        return 0

    cdef bint put_plainly(self, const uint8_t* at, const uint8_t* end, dict replicas, dict copies, uint32_t seed) except -1:
        """Follow a `PlainPuts`."""
        cdef Py_ssize_t fields, size, place, key_size, partition
        cdef uint64_t tag, count
        cdef PlainRows rows
        cdef PyObject **targets
        cdef str name
        at = list_at(at, end, &fields)
        if at == NULL or fields != 4:
            return False
        at = number_at(at, end, &tag)
        if at == NULL or tag != PLAIN_PUTS:
            return False
        at = text_at(at, end, &size)
        if at == NULL:
            return False
        name = self.name_in(at, size)
        at = number_at(at + size, end, &count)
        if name is None or at == NULL or not 0 < count <= LONGEST:
            return False
        at = bytes_at(at, end, &size)
        if at == NULL or at + size != end or not rows_in(at, size, &rows):
            return False
        # Nothing below runs code in Python: what was found stays.
        targets = <PyObject**>PyMem_Malloc(4 * rows.many * sizeof(PyObject*) + 1)
        if targets == NULL:
            raise MemoryError()
        try:
            at = rows.keys
            for place in range(rows.many):
                key_size = little_at(rows.sizes + NUMBER_BYTES * place)
                partition = partition_of_payload(at + TYPE_ID_BYTES, max(key_size - TYPE_ID_BYTES, 0), <uint32_t>count, seed)
                if not self.find(replicas, copies, partition, name, targets + 4 * place):
                    return False
                at += key_size
            for place in range(rows.many):
                key_size = little_at(rows.sizes + NUMBER_BYTES * place)
                size = little_at(rows.sizes + NUMBER_BYTES * (rows.many + place))
                self.keep_all(targets + 4 * place, rows.keys, key_size, rows.values, size)
                rows.keys += key_size
                rows.values += size
        finally:
            PyMem_Free(targets)
        return True

    cdef bint put(self, const uint8_t* at, const uint8_t* end, dict replicas, dict copies, now) except -1:
        """Follow a `ReplicatePut` of one entry."""
        cdef Py_ssize_t fields, size, key_size, many, caller_size = 0
        cdef uint64_t numbers[4]  # tag, partition, epoch, seq
        cdef uint64_t operation = 0, open_from = 0
        cdef const uint8_t *key
        cdef const uint8_t *value
        cdef const uint8_t *caller = NULL
        cdef PyObject *targets[4]
        cdef Py_ssize_t place
        cdef object outcome = None
        cdef str name, who
        at = list_at(at, end, &fields)
        if at == NULL or fields != PUT_FIELDS:
            return False
        for place in range(4):
            at = number_at(at, end, &numbers[place])
            if at == NULL:
                return False
        at = text_at(at, end, &size)
        if at == NULL or numbers[0] != REPLICATE_PUT:
            return False
        name = self.name_in(at, size)
        at = list_at(at + size, end, &many)
        if name is None or at == NULL or many != 1:
            return False
        key = bytes_at(at, end, &key_size)
        if key == NULL:
            return False
        at = list_at(key + key_size, end, &many)
        if at == NULL or many != 1:
            return False
        value = bytes_at(at, end, &size)
        if value == NULL:
            return False
        at = value + size
        if end - at < 5 or at[0] != 0:  # it has a time to live
            return False
        at += 1
        if at[0] == NIL:
            at += 1
        else:
            at = list_at(at, end, &many)
            if at == NULL or many != OUTCOME_FIELDS:
                return False
            caller = text_at(at, end, &caller_size)
            if caller == NULL:
                return False
            at = number_at(caller + caller_size, end, &operation)
            if at == NULL:
                return False
            at = number_at(at, end, &open_from)
            if at == NULL or at >= end or not (at[0] == NIL or at[0] == TRUE or at[0] == FALSE):
                return False
            outcome = None if at[0] == NIL else at[0] == TRUE
            at += 1
        # Not from a merge, no page of staged rows, and it does not expire for being idle.
        if end - at != 3 or at[0] != FALSE or at[1] != 0 or at[2] != 0:
            return False
        if not self.find(replicas, copies, numbers[1], name, targets):
            return False
        for place in range(0, 4, 2):
            if targets[place] != NULL and <uint64_t>PyLong_AsLongLong(<object>slot(targets[place], self.seq)[0]) + 1 != numbers[3]:
                return False
        if caller == NULL:
            self.keep_all(targets, key, key_size, value, size)
            return True
        try:
            who = PyUnicode_DecodeUTF8(<const char*>caller, caller_size, NULL)
        except UnicodeDecodeError:
            return False
        self.keep_all(targets, key, key_size, value, size)
        self.note(targets, who, (operation, open_from, outcome, now))
        return True

    cdef int note(self, PyObject** targets, str caller, tuple operation) except -1:
        """Record the outcome of an operation."""
        cdef object first = <object>slot(targets[0], self.deduplication)[0] if targets[0] != NULL else None
        cdef object second = <object>slot(targets[2], self.deduplication)[0] if targets[2] != NULL else None
        for deduplication in (first, second):
            if deduplication is not None:
                deduplication.note(caller, operation[0], operation[1], operation[2], operation[3])
        return 0
