# cython: language_level=3
"""Loops over whole columns, as the Spark source has them: arrays of octets and of numbers, one element for each row."""

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from phalanx_native._bytes cimport (
    LONGEST,
    NUMBER_BYTES,
    TYPE_ID_BYTES,
    big_at,
    data_of,
    partition_of_payload,
    put_big,
    put_item_of_row,
    put_little,
)


# Rows by partition.


cdef struct PartitionRows:
    Py_ssize_t many
    Py_ssize_t key_bytes
    Py_ssize_t value_bytes
    uint8_t *sizes
    uint8_t *keys
    uint8_t *values


def pack_by_partition(
    const uint8_t[::1] key_data,
    const int64_t[::1] key_ends,
    const uint8_t[::1] value_data,
    const int64_t[::1] value_ends,
    uint32_t partition_count,
    uint32_t seed,
):
    """Packed rows of each partition, of keys and values side by side: `phalanx_spark.columns.packing.rows_by_partition`.

    `key_ends`, `value_ends`: where each begins, and where the last one ends.
    """
    cdef Py_ssize_t many = key_ends.shape[0] - 1, row, size
    cdef PartitionRows *parts
    cdef PartitionRows *part
    cdef uint32_t *partitions
    cdef bytes packed
    cdef dict found = {}
    # Data without a byte has no first one.
    cdef const uint8_t *keys = &key_data[0] if key_data.shape[0] else data_of(b"")
    cdef const uint8_t *values = &value_data[0] if value_data.shape[0] else data_of(b"")
    if not partition_count:
        raise ZeroDivisionError("there are no partitions")
    if many < 0 or value_ends.shape[0] != many + 1:
        raise ValueError(f"{many} keys and {value_ends.shape[0] - 1} values")
    _check_ends(key_ends, key_data.shape[0])
    _check_ends(value_ends, value_data.shape[0])
    if not many:
        return found
    partitions = <uint32_t*>PyMem_Calloc(many, sizeof(uint32_t))
    parts = <PartitionRows*>PyMem_Calloc(partition_count, sizeof(PartitionRows))
    try:
        if partitions == NULL or parts == NULL:
            raise MemoryError()
        for row in range(many):
            size = max(key_ends[row + 1] - key_ends[row] - TYPE_ID_BYTES, 0)
            partitions[row] = partition_of_payload(keys + key_ends[row] + TYPE_ID_BYTES, size, partition_count, seed)
            part = parts + partitions[row]
            part.many += 1
            part.key_bytes += key_ends[row + 1] - key_ends[row]
            part.value_bytes += value_ends[row + 1] - value_ends[row]
        for row in range(partition_count):
            part = parts + row
            if not part.many:
                continue
            packed = PyBytes_FromStringAndSize(NULL, NUMBER_BYTES * (1 + 2 * part.many) + part.key_bytes + part.value_bytes)
            found[row] = packed
            put_little(data_of(packed), <uint32_t>part.many)
            part.sizes = data_of(packed) + NUMBER_BYTES
            part.keys = part.sizes + 2 * NUMBER_BYTES * part.many
            part.values = part.keys + part.key_bytes
        for row in range(many):
            part = parts + partitions[row]
            size = key_ends[row + 1] - key_ends[row]
            part.keys = put_item_of_row(part.keys, part.sizes, keys + key_ends[row], size)
            size = value_ends[row + 1] - value_ends[row]
            part.values = put_item_of_row(
                part.values, part.sizes + NUMBER_BYTES * part.many, values + value_ends[row], size
            )
            part.sizes += NUMBER_BYTES
    finally:
        PyMem_Free(partitions)
        PyMem_Free(parts)
    return found


cdef int _check_ends(const int64_t[::1] ends, Py_ssize_t size) except -1:
    cdef Py_ssize_t place
    for place in range(ends.shape[0]):
        if ends[place] < 0 or ends[place] > size or (place and not 0 <= ends[place] - ends[place - 1] <= LONGEST):
            raise ValueError(f"item {place} goes beyond the {size} bytes")
    return 0


# MessagePack, read from places in a page. A place may be anywhere: what is not inside does not fit.


def match_literal(const uint8_t[::1] data, const int64_t[::1] at, bytes literal not None, uint8_t[::1] fits):
    """Set the flag of each row to 0 where the literal does not stand: `phalanx_spark.columns.pages.PageWalk.expect`."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(literal), row
    cdef int64_t last = data.shape[0] - size
    if fits.shape[0] != at.shape[0]:
        raise ValueError(f"{at.shape[0]} rows and {fits.shape[0]} flags")
    if not size:
        return
    for row in range(at.shape[0]):
        if not 0 <= at[row] <= last or memcmp(&data[at[row]], data_of(literal), size):
            fits[row] = 0


def read_integers(
    const uint8_t[::1] data, const uint8_t[::1] tags, const int64_t[::1] at, int64_t[::1] values, uint8_t[::1] fits
):
    """Read the integer behind each tag into `values`, and whether it is one that a long can hold into `fits`:
    `phalanx_spark.columns.scalars.integers_at`. What does not fit is 0.
    """
    cdef Py_ssize_t row, many = at.shape[0]
    cdef int64_t last = data.shape[0] - 8
    cdef uint64_t raw
    cdef uint8_t tag
    if tags.shape[0] != many or values.shape[0] != many or fits.shape[0] != many:
        raise ValueError(f"{many} rows, {tags.shape[0]} tags, {values.shape[0]} values and {fits.shape[0]} flags")
    for row in range(many):
        tag = tags[row]
        values[row] = 0
        fits[row] = 1
        if tag < 0x80 or tag >= 0xE0:
            values[row] = <int8_t>tag
        elif not 0xCC <= tag <= 0xD3 or not 0 <= at[row] <= last:
            fits[row] = 0
        else:
            raw = <uint64_t>big_at(&data[at[row]]) << 32 | big_at(&data[at[row] + 4])
            if tag == 0xCC:
                values[row] = <int64_t>(raw >> 56)
            elif tag == 0xCD:
                values[row] = <int64_t>(raw >> 48)
            elif tag == 0xCE:
                values[row] = <int64_t>(raw >> 32)
            elif tag == 0xD0:
                values[row] = <int8_t>(raw >> 56)
            elif tag == 0xD1:
                values[row] = <int16_t>(raw >> 48)
            elif tag == 0xD2:
                values[row] = <int32_t>(raw >> 32)
            elif tag == 0xD3 or not raw >> 63:
                values[row] = <int64_t>raw
            else:
                fits[row] = 0


# MessagePack, written. The result is the bytes of an Arrow array of binaries, and its offsets.


cdef inline int width_of(int64_t number) noexcept:
    """How many bytes follow the tag of an integer in its shortest form."""
    if -32 <= number < 0x80:
        return 0
    if number >= 0:
        return 1 if number < 0x100 else 2 if number < 0x10000 else 4 if number < 0x100000000 else 8
    return 1 if number >= -0x80 else 2 if number >= -0x8000 else 4 if number >= -0x80000000 else 8


cdef inline uint8_t tag_of(int64_t number, int width) noexcept:
    cdef uint8_t first = 0xCC if number >= 0 else 0xD0
    if width == 0:
        return <uint8_t>number
    return first if width == 1 else first + 1 if width == 2 else first + 2 if width == 4 else first + 3


def write_integers(bytes head not None, const int64_t[::1] values):
    """Each integer in its shortest form, behind a constant: `phalanx_spark.columns.cells`."""
    cdef Py_ssize_t many = values.shape[0], skip = PyBytes_GET_SIZE(head), row, total = 0
    cdef int width
    cdef uint8_t *at
    cdef uint8_t *offsets
    cdef uint8_t number[8]
    for row in range(many):
        total += skip + 1 + width_of(values[row])
    _check_total(total)
    cdef bytes data = PyBytes_FromStringAndSize(NULL, total)
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, NUMBER_BYTES * (many + 1))
    at, offsets = data_of(data), data_of(ends)
    put_offset(offsets, 0)
    for row in range(many):
        width = width_of(values[row])
        memcpy(at, data_of(head), skip)
        at[skip] = tag_of(values[row], width)
        put_big(number, <uint32_t>(<uint64_t>values[row] >> 32))
        put_big(number + 4, <uint32_t>values[row])
        memcpy(at + skip + 1, number + 8 - width, width)
        at += skip + 1 + width
        put_offset(offsets + NUMBER_BYTES * (row + 1), <int32_t>(at - data_of(data)))
    return data, ends


def join_pieces(list columns not None):
    """Concatenate the pieces of each row: `phalanx_spark.columns.cells.join`. `columns`: of each the octets, and the offsets."""
    cdef Py_ssize_t count = len(columns), column, row, many, total = 0, size
    cdef const uint8_t[::1] octets
    cdef const int32_t[::1] ends
    cdef const uint8_t **data
    cdef const int32_t **offsets
    cdef uint8_t *at
    cdef list held = []
    if not count:
        raise ValueError("there are no pieces")
    data = <const uint8_t**>PyMem_Calloc(count, sizeof(uint8_t*))
    offsets = <const int32_t**>PyMem_Calloc(count, sizeof(int32_t*))
    try:
        if data == NULL or offsets == NULL:
            raise MemoryError()
        many = len(columns[0][1]) - 1
        for column in range(count):
            octets, ends = columns[column]
            held.append((octets, ends))
            if ends.shape[0] != many + 1 or many < 0:
                raise ValueError(f"piece {column} has {ends.shape[0] - 1} rows, and the first {many}")
            for row in range(many):
                if not 0 <= ends[row] <= ends[row + 1] <= octets.shape[0]:
                    raise ValueError(f"row {row} of piece {column} goes beyond the {octets.shape[0]} bytes")
            data[column] = &octets[0] if octets.shape[0] else data_of(b"")
            offsets[column] = &ends[0]
            total += ends[many] - ends[0]
        _check_total(total)
        joined = PyBytes_FromStringAndSize(NULL, total)
        joined_ends = PyBytes_FromStringAndSize(NULL, NUMBER_BYTES * (many + 1))
        at = data_of(joined)
        put_offset(data_of(joined_ends), 0)
        for row in range(many):
            for column in range(count):
                size = offsets[column][row + 1] - offsets[column][row]
                memcpy(at, data[column] + offsets[column][row], size)
                at += size
            put_offset(data_of(joined_ends) + NUMBER_BYTES * (row + 1), <int32_t>(at - data_of(joined)))
    finally:
        PyMem_Free(data)
        PyMem_Free(offsets)
    return joined, joined_ends


cdef inline void put_offset(uint8_t* to, int32_t offset) noexcept:
    memcpy(to, &offset, NUMBER_BYTES)  # Arrow's offsets have the byte order of the machine


cdef int _check_total(Py_ssize_t total) except -1:
    if total > LONGEST:
        raise OverflowError(f"{total} bytes are more than one binary array holds")
    return 0
