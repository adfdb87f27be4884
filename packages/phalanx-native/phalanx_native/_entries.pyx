# cython: language_level=3
"""Loops over many keys or values that do one allocation for each, and call Python only for what is out of the common.

Every function takes a copy of its sequence first, a tuple: what Python code it calls, or another thread meanwhile, may
change the caller's list.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next, PyDict_SetItem
from cpython.list cimport PyList_New
from cpython.long cimport PyLong_CheckExact, PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8String, PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from phalanx_native._bytes cimport (
    BYTES_TYPE_ID,
    HEAD_BYTES,
    INT_BYTES,
    INT_TYPE_ID,
    LONGEST,
    NUMBER_BYTES,
    STR_TYPE_ID,
    TYPE_ID_BYTES,
    big_at,
    data_of,
    little_at,
    partition_of_payload,
    put_big,
    put_item,
    put_item_of_row,
    put_little,
)

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object)
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void* PyUnicode_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    int64_t PyLong_AsLongLongAndOverflow(object, int*) except? -1

INTERFACE = 10
"""Counts up with every change that the callers in `phalanx` must know of."""
cdef enum:
    HASH_SEED = 0x01000193  # of `phalanx.codec.hashing`: a call for a single key is too short to hand it over


def partition_of(bytes key_data not None, uint32_t partition_count):
    """The partition of a serialised key: `phalanx.codec.hashing.partition_of`."""
    if not partition_count:
        raise ZeroDivisionError("there are no partitions")
    cdef Py_ssize_t size = max(PyBytes_GET_SIZE(key_data) - TYPE_ID_BYTES, 0)
    return partition_of_payload(data_of(key_data) + TYPE_ID_BYTES, size, partition_count, HASH_SEED)


def partitions_of(keys_data, uint32_t partition_count, uint32_t seed):
    """The partition of each serialised key: `phalanx.codec.hashing.partitions_of`."""
    cdef tuple keys = tuple(keys_data)
    cdef Py_ssize_t many = len(keys), place, size
    cdef list found = PyList_New(many)
    cdef bytes key
    if not partition_count:
        raise ZeroDivisionError("there are no partitions")
    for place in range(many):
        key = <bytes?>keys[place]
        size = max(PyBytes_GET_SIZE(key) - TYPE_ID_BYTES, 0)
        put_item(found, place, partition_of_payload(data_of(key) + TYPE_ID_BYTES, size, partition_count, seed))
    return found


# Keys and values as bytes.


cdef inline bytes with_head(int32_t type_id, const void* payload, Py_ssize_t size):
    cdef bytes data = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + size)
    put_big(data_of(data), <uint32_t>type_id)
    put_big(data_of(data) + TYPE_ID_BYTES, <uint32_t>size)
    memcpy(data_of(data) + HEAD_BYTES, payload, size)
    return data


cdef inline bytes text_data(object text):
    """The data of a text; None: it is too long, or no Unicode."""
    cdef bytes payload
    if PyUnicode_IS_COMPACT_ASCII(text):
        if PyUnicode_GET_LENGTH(text) > LONGEST:
            return None
        return with_head(STR_TYPE_ID, PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text))
    try:
        payload = PyUnicode_AsUTF8String(text)
    except UnicodeEncodeError:
        return None
    if PyBytes_GET_SIZE(payload) > LONGEST:
        return None
    return with_head(STR_TYPE_ID, data_of(payload), PyBytes_GET_SIZE(payload))


cdef inline bytes int_data(object number):
    """The data of a number of 64 bits; None: it has more."""
    cdef int overflow = 0
    cdef uint64_t bits = <uint64_t>PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow:
        return None
    cdef bytes data = PyBytes_FromStringAndSize(NULL, INT_BYTES)
    put_big(data_of(data), <uint32_t>INT_TYPE_ID)
    put_big(data_of(data) + TYPE_ID_BYTES, <uint32_t>(bits >> 32))
    put_big(data_of(data) + HEAD_BYTES, <uint32_t>bits)
    return data


def group_by_owner(keys, values, owner_of, uint32_t seed):
    """Keys, and values if there are any, of each owner: `phalanx.maps.grouping.group_by_owner`."""
    cdef tuple own = tuple(keys), their = tuple(values), owners = tuple(owner_of)
    cdef Py_ssize_t many = len(own), count = len(owners), place, size, number
    cdef bint has_values = len(their) > 0
    cdef list groups = []
    cdef dict known = {}
    cdef uint32_t partition
    cdef bytes key
    cdef tuple group
    cdef Py_ssize_t *group_at
    if has_values and len(their) != many:
        raise ValueError(f"{many} keys and {len(their)} values")
    if not count:
        raise ZeroDivisionError("there are no partitions")
    group_at = <Py_ssize_t*>PyMem_Malloc(count * sizeof(Py_ssize_t))
    if group_at == NULL:
        raise MemoryError()
    try:
        for place in range(count):
            group_at[place] = -1
        for place in range(many):
            key = <bytes?>own[place]
            size = max(PyBytes_GET_SIZE(key) - TYPE_ID_BYTES, 0)
            partition = partition_of_payload(data_of(key) + TYPE_ID_BYTES, size, <uint32_t>count, seed)
            number = group_at[partition]
            if number < 0:
                number = group_at[partition] = known.setdefault(owners[partition], len(groups))
                if number == len(groups):
                    groups.append((partition, [], [], []))
            group = <tuple>groups[number]
            (<list>group[1]).append(place)
            (<list>group[2]).append(key)
            if has_values:
                (<list>group[3]).append(their[place])
    finally:
        PyMem_Free(group_at)
    return groups


def put_at(list to not None, indexes, items):
    """Put items at these places of a list: `phalanx.maps.grouping.put_at`."""
    cdef tuple places = tuple(indexes), given = tuple(items)
    cdef Py_ssize_t number, place
    if len(given) > len(places):
        raise ValueError(f"{len(given)} items for {len(places)} places")
    for number in range(len(given)):
        place = places[number]
        if not 0 <= place < len(to):
            raise IndexError(f"there is no place {place}")
        to[place] = given[number]


def keys_to_data(keys, other):
    """Serialise keys: `phalanx.codec.values.keys_to_data`. `other`: serialises one of any type, or raises."""
    cdef tuple given = tuple(keys)
    cdef Py_ssize_t many = len(given), place
    cdef list found = PyList_New(many)
    cdef object key
    cdef bytes data
    for place in range(many):
        key = given[place]
        data = None
        if PyUnicode_CheckExact(key):
            data = text_data(key)
        elif PyLong_CheckExact(key):
            data = int_data(key)
        put_item(found, place, <bytes?>other(key) if data is None else data)
    return found


def values_to_data(values, other):
    """Serialise values: `phalanx.codec.values.values_to_data`. `other`: serialises one of any type, or raises."""
    cdef tuple given = tuple(values)
    cdef Py_ssize_t many = len(given), place
    cdef list found = PyList_New(many)
    cdef object value
    cdef bytes data
    for place in range(many):
        value = given[place]
        data = None
        if PyBytes_CheckExact(value):
            if PyBytes_GET_SIZE(value) <= LONGEST:
                data = with_head(BYTES_TYPE_ID, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        elif PyUnicode_CheckExact(value):
            data = text_data(value)
        elif PyLong_CheckExact(value):
            data = int_data(value)
        put_item(found, place, <bytes?>other(value) if data is None else data)
    return found


cdef inline object value_from_data(object data, object other):
    """The value of serialised data; what is not text, bytes or a number goes to `other`."""
    cdef const uint8_t* at
    cdef Py_ssize_t size
    cdef int32_t type_id
    if PyBytes_CheckExact(data) and PyBytes_GET_SIZE(data) >= HEAD_BYTES:
        at, size = <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
        type_id = <int32_t>big_at(at)
        if type_id == INT_TYPE_ID:
            if size == INT_BYTES:
                return PyLong_FromLongLong(<int64_t>(<uint64_t>big_at(at + 4) << 32 | big_at(at + 8)))
        elif <int64_t>big_at(at + TYPE_ID_BYTES) != size - HEAD_BYTES:
            pass
        elif type_id == BYTES_TYPE_ID:
            return PyBytes_FromStringAndSize(<const char*>at + HEAD_BYTES, size - HEAD_BYTES)
        elif type_id == STR_TYPE_ID:
            try:
                return PyUnicode_DecodeUTF8(<char*>at + HEAD_BYTES, size - HEAD_BYTES, NULL)
            except UnicodeDecodeError:
                pass
    return other(data)


def values_from_data(datas, other):
    """Deserialise values: `phalanx.codec.values.values_from_data`. `other`: reads the data of any type, or raises."""
    cdef tuple given = tuple(datas)
    cdef Py_ssize_t many = len(given), place
    cdef list found = PyList_New(many)
    for place in range(many):
        put_item(found, place, value_from_data(given[place], other))
    return found


def entries_from_data(keys, datas, other):
    """The keys that have data, and their values: `phalanx.codec.values.entries_from_data`. `other`: as above."""
    cdef tuple own = tuple(keys), their = tuple(datas)
    cdef Py_ssize_t many = len(own), place
    cdef dict found = {}
    cdef object data
    if len(their) != many:
        raise ValueError(f"{many} keys and {len(their)} values")
    for place in range(many):
        data = their[place]
        if data is not None:
            found[own[place]] = value_from_data(data, other)
    return found


# Sizes, and parts of values.


def sizes_of(items):
    """How many there are, their bytes in total, and the least and most of one: `phalanx.codec.rows.extent_of_items`."""
    cdef tuple given = tuple(items)
    cdef Py_ssize_t place, size, total = 0, smallest = 0, largest = 0
    for place in range(len(given)):
        size = PyBytes_GET_SIZE(<bytes?>given[place])
        total += size
        largest = max(largest, size)
        smallest = size if place == 0 else min(smallest, size)
    return len(given), total, smallest, largest


def sizes_in(bytes sizes not None):
    """As `sizes_of`, from the sizes as they stand in packed rows: of `phalanx.codec.rows.extents_of`."""
    cdef Py_ssize_t many = PyBytes_GET_SIZE(sizes) // NUMBER_BYTES, place, total = 0
    cdef uint32_t size, smallest = 0xFFFFFFFF, largest = 0
    for place in range(many):
        size = little_at(data_of(sizes) + NUMBER_BYTES * place)
        total += size
        largest = max(largest, size)
        smallest = min(smallest, size)
    return many, total, smallest if many else 0, largest


def without_prefixes(values, Py_ssize_t prefix_bytes):
    """The values, and None for None, without so many bytes before each: `phalanx.codec.rows.without_prefixes`."""
    cdef tuple given = tuple(values)
    cdef Py_ssize_t many = len(given), place, size
    cdef list found = PyList_New(many)
    cdef object value
    for place in range(many):
        value = given[place]
        if value is not None:
            size = max(PyBytes_GET_SIZE(<bytes?>value) - prefix_bytes, 0)
            value = PyBytes_FromStringAndSize(PyBytes_AS_STRING(value) + PyBytes_GET_SIZE(value) - size, size)
        put_item(found, place, value)
    return found


# Packed rows.


def pack_rows(keys, values):
    """Pack keys and their values: `phalanx.codec.rows.pack_rows`."""
    cdef tuple own = tuple(keys), their = tuple(values)
    cdef Py_ssize_t many = len(own), place, total = NUMBER_BYTES * (1 + 2 * len(own)), size
    cdef bytes item, packed
    cdef uint8_t *sizes
    cdef uint8_t *at
    if len(their) != many:
        raise ValueError(f"{many} keys and {len(their)} values")
    for items in (own, their):
        for place in range(many):
            item = <bytes?>(<tuple>items)[place]
            if PyBytes_GET_SIZE(item) > LONGEST:
                raise OverflowError("an item has more than 2 GiB")
            total += PyBytes_GET_SIZE(item)
    packed = PyBytes_FromStringAndSize(NULL, total)
    sizes = data_of(packed)
    put_little(sizes, <uint32_t>many)
    at = sizes + NUMBER_BYTES * (1 + 2 * many)
    for items in (own, their):
        for place in range(many):
            item = <bytes>(<tuple>items)[place]
            size = PyBytes_GET_SIZE(item)
            sizes += NUMBER_BYTES
            put_little(sizes, <uint32_t>size)
            memcpy(at, data_of(item), size)
            at += size
    return packed


def split_rows(bytes data not None, Py_ssize_t sizes, Py_ssize_t begin, Py_ssize_t many, bytes prefix not None):
    """Split `many` items whose sizes and first byte are at these offsets: `phalanx.codec.rows.split_rows`."""
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), skip = PyBytes_GET_SIZE(prefix), place, size
    cdef list found
    cdef bytes item
    cdef const uint8_t* at = data_of(data)
    if many < 0 or sizes < 0 or begin < 0 or begin > end or sizes > end or many > (end - sizes) // NUMBER_BYTES:
        raise ValueError(f"{end} bytes have no {many} items there")
    found = PyList_New(many)
    for place in range(many):
        size = little_at(at + sizes + NUMBER_BYTES * place)
        if size > end - begin:
            raise ValueError(f"item {place} goes beyond the {end} bytes")
        item = PyBytes_FromStringAndSize(NULL, skip + size)
        memcpy(data_of(item), data_of(prefix), skip)
        memcpy(data_of(item) + skip, at + begin, size)
        begin += size
        put_item(found, place, item)
    return found


cdef Py_ssize_t first_row(bytes data) except -1:
    """Where the first key of packed rows stands. Raises unless the sizes fit the data exactly."""
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), many, left, number
    many = little_at(data_of(data)) if end >= NUMBER_BYTES else 0
    if end < NUMBER_BYTES or many > (end - NUMBER_BYTES) // (2 * NUMBER_BYTES):
        raise ValueError(f"{end} bytes are no packed rows")
    left = end - NUMBER_BYTES * (1 + 2 * many)
    for number in range(2 * many):
        left -= little_at(data_of(data) + NUMBER_BYTES * (1 + number))
        if left < 0:
            break
    if left != 0:
        raise ValueError(f"{end} bytes are not the {many} packed rows that they are to be")
    return NUMBER_BYTES * (1 + 2 * many)


def greatest_head(bytes data not None, Py_ssize_t head_bytes):
    """The greatest first bytes of a value in packed rows: `phalanx.codec.rows.greatest_head`."""
    cdef Py_ssize_t at = first_row(data), many = little_at(data_of(data)), number, size, greatest_size = 0
    cdef const uint8_t *base = data_of(data)
    cdef const uint8_t *sizes = base + NUMBER_BYTES
    cdef const uint8_t *greatest = base
    cdef int order
    for number in range(many):
        at += little_at(sizes + NUMBER_BYTES * number)
    sizes += NUMBER_BYTES * many
    for number in range(many):
        size = min(<Py_ssize_t>little_at(sizes + NUMBER_BYTES * number), head_bytes)
        order = memcmp(base + at, greatest, min(size, greatest_size))
        if order > 0 or (order == 0 and size > greatest_size):
            greatest, greatest_size = base + at, size
        at += little_at(sizes + NUMBER_BYTES * number)
    return PyBytes_FromStringAndSize(<const char*>greatest, greatest_size)


def add_rows(dict entries not None, bytes data not None):
    """Put packed rows into a dict, and tell how much larger it has become: `phalanx.codec.rows.add_rows`."""
    cdef Py_ssize_t key_at = first_row(data), many = little_at(data_of(data)), number, key_size, value_size
    cdef Py_ssize_t value_at = key_at, grown = 0, new = 0
    cdef const uint8_t *base = data_of(data)
    cdef const uint8_t *sizes = base + NUMBER_BYTES
    cdef bytes key, value
    cdef PyObject *old
    for number in range(many):
        value_at += little_at(sizes + NUMBER_BYTES * number)
    for number in range(many):
        key_size = little_at(sizes + NUMBER_BYTES * number)
        value_size = little_at(sizes + NUMBER_BYTES * (many + number))
        key = PyBytes_FromStringAndSize(<const char*>base + key_at, key_size)
        value = PyBytes_FromStringAndSize(<const char*>base + value_at, value_size)
        key_at += key_size
        value_at += value_size
        old = PyDict_GetItemWithError(entries, key)
        if old == NULL:
            new += 1
            grown += key_size + value_size
        else:
            grown += value_size - PyBytes_GET_SIZE(<bytes?><object>old)
        PyDict_SetItem(entries, key, value)
    return new, grown


def next_rows(dict entries not None, list left not None, Py_ssize_t most, Py_ssize_t max_bytes, Py_ssize_t overhead):
    """Entries of the last keys, packed: `phalanx.grid.replication.copying.next_rows`."""
    cdef Py_ssize_t place, end = len(left), first = max(len(left) - most, 0), size, total = 0, number, many
    cdef Py_ssize_t consumed = end - first, packed_size
    cdef list keys = []
    cdef object key
    cdef PyObject *value
    cdef PyObject **values
    cdef bytes rows
    cdef uint8_t *sizes
    cdef uint8_t *at
    # The dict holds the values, and nothing below runs Python code or lets another thread run: none of them goes away.
    values = <PyObject**>PyMem_Malloc(max(consumed, 1) * sizeof(PyObject*))
    if values == NULL:
        raise MemoryError()
    try:
        for place in range(end - 1, first - 1, -1):
            key = <object>left[place]
            if not PyBytes_CheckExact(key):
                raise TypeError("keys are bytes")
            value = PyDict_GetItemWithError(entries, key)
            if value == NULL:
                continue
            if not PyBytes_CheckExact(<object>value):
                raise TypeError("entries are bytes to bytes")
            if PyBytes_GET_SIZE(key) > LONGEST or PyBytes_GET_SIZE(<object>value) > LONGEST:
                raise OverflowError("an item has more than 2 GiB")
            size = total + PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(<object>value) + overhead
            if size > max_bytes and keys:
                consumed = end - 1 - place
                break
            total = size
            values[len(keys)] = value
            keys.append(key)
        many = len(keys)
        packed_size = NUMBER_BYTES * (1 + 2 * many) + total - overhead * many
        rows = PyBytes_FromStringAndSize(NULL, packed_size)
        sizes = data_of(rows)
        put_little(sizes, <uint32_t>many)
        sizes += NUMBER_BYTES
        at = sizes + NUMBER_BYTES * 2 * many
        for number in range(many):
            key = <object>keys[number]
            at = put_item_of_row(at, sizes, <uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
            sizes += NUMBER_BYTES
        for number in range(many):
            at = put_item_of_row(
                at,
                sizes,
                <uint8_t*>PyBytes_AS_STRING(<object>values[number]),
                PyBytes_GET_SIZE(<object>values[number]),
            )
            sizes += NUMBER_BYTES
    finally:
        PyMem_Free(values)
    return rows, keys, consumed, total


def page_of_entries(dict entries not None, Py_ssize_t max_bytes):
    """All keys, their sizes, all values and theirs, or None: `phalanx.grid.serving.packing.page_of_entries`."""
    cdef Py_ssize_t place = 0, many = 0, key_bytes = 0, value_bytes = 0
    cdef PyObject *key
    cdef PyObject *value
    while PyDict_Next(entries, &place, &key, &value):
        if not PyBytes_CheckExact(<object>key) or not PyBytes_CheckExact(<object>value):
            raise TypeError("entries are bytes to bytes")
        if PyBytes_GET_SIZE(<object>key) > LONGEST or PyBytes_GET_SIZE(<object>value) > LONGEST:
            return None
        key_bytes += PyBytes_GET_SIZE(<object>key)
        value_bytes += PyBytes_GET_SIZE(<object>value)
        many += 1
        if key_bytes + value_bytes > max_bytes:
            return None
    cdef bytes key_data = PyBytes_FromStringAndSize(NULL, key_bytes)
    cdef bytes key_sizes = PyBytes_FromStringAndSize(NULL, NUMBER_BYTES * many)
    cdef bytes value_data = PyBytes_FromStringAndSize(NULL, value_bytes)
    cdef bytes value_sizes = PyBytes_FromStringAndSize(NULL, NUMBER_BYTES * many)
    cdef uint8_t *key_at = data_of(key_data)
    cdef uint8_t *value_at = data_of(value_data)
    cdef Py_ssize_t number = 0
    place = 0
    while PyDict_Next(entries, &place, &key, &value):
        key_at = put_item_of_row(
            key_at, data_of(key_sizes) + number, <uint8_t*>PyBytes_AS_STRING(<object>key), PyBytes_GET_SIZE(<object>key)
        )
        value_at = put_item_of_row(
            value_at,
            data_of(value_sizes) + number,
            <uint8_t*>PyBytes_AS_STRING(<object>value),
            PyBytes_GET_SIZE(<object>value),
        )
        number += NUMBER_BYTES
    return key_data, key_sizes, value_data, value_sizes
