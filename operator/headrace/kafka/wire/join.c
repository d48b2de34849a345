/* Makes one record batch of small ones that follow each other in a log: see joining.py, which loads
 * it.
 *
 * Of each record its length and its two deltas are written again, the rest is copied. Whatever the
 * bytes are, nothing is read outside of [in, in + in_bytes), or written outside of
 * [out, out + out_bytes). What is damaged, or contradicts itself, is not taken.
 */
#include "crc32c.h"

enum {
    LENGTH_AT = 8, EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, PRODUCER_AT = 43, COUNT_AT = 57, HEADER = 61
};

static int64_t read_number(const uint8_t *at, int bytes) {
    uint64_t number = 0;
    for (int n = 0; n < bytes; n++) number = number << 8 | at[n];
    return bytes == 4 ? (int32_t)number : (int64_t)number;
}

static void write_number(uint8_t *at, int bytes, int64_t number) {
    for (int n = 0; n < bytes; n++) at[n] = (uint8_t)((uint64_t)number >> 8 * (bytes - 1 - n));
}

/* A zigzag number of at most `most` bytes; NULL when it does not end in time. */
static const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, int most, int64_t *number) {
    uint64_t zigzag = 0;
    for (int n = 0; n < most && at < end; n++) {
        uint8_t byte = *at++;
        zigzag |= (uint64_t)(byte & 0x7F) << (7 * n);
        if (byte < 0x80) {
            *number = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
            return at;
        }
    }
    return 0;
}

static int write_varint(uint8_t *at, int64_t number) {
    uint64_t zigzag = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    int size = 0;
    for (; zigzag >= 0x80; zigzag >>= 7) at[size++] = (uint8_t)(zigzag | 0x80);
    at[size++] = (uint8_t)zigzag;
    return size;
}

/* The size of the batch at `in`, by its header; 0: it is not all there, or not to be joined: another
 * magic, compressed or with bits of any kind, too large, with holes, before `next_offset`. */
static int64_t plain_bytes(const uint8_t *in, int64_t in_bytes, int64_t next_offset,
                           int64_t most_bytes) {
    if (in_bytes < HEADER || in[MAGIC_AT] != 2 || in[ATTRIBUTES_AT] || in[ATTRIBUTES_AT + 1])
        return 0;
    int64_t size = read_number(in + LENGTH_AT, 4) + EPOCH_AT;
    int64_t base_offset = read_number(in, 8), count = read_number(in + COUNT_AT, 4);
    int good = size >= HEADER && size <= in_bytes && size <= most_bytes &&
               base_offset >= next_offset && base_offset < INT64_MAX - INT32_MAX && count > 0 &&
               count == read_number(in + DELTA_AT, 4) + 1;
    return good ? size : 0;
}

typedef struct { /* The batch that is made. */
    uint8_t *at, *end;
    int64_t records, first_timestamp, newest;
} Made;

/* Puts the records of the batch of `size` bytes at `in` behind those that are there. 0: it is not
 * intact, or there is no room for all of them. */
static int append(const uint8_t *in, int64_t size, Made *made) {
    if (crc32c(in + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != (uint32_t)read_number(in + CRC_AT, 4))
        return 0;
    int64_t timestamp = read_number(in + BASE_TIMESTAMP_AT, 8);
    int64_t count = read_number(in + COUNT_AT, 4);
    if (!made->records) made->first_timestamp = timestamp;
    const uint8_t *at = in + HEADER, *batch_end = in + size;
    uint8_t *out = made->at;
    int64_t newest = made->newest;
    if (made->records + count > INT32_MAX) return 0;
    for (int64_t expected = 0; expected < count; expected++) {
        int64_t length, timestamp_delta, delta;
        if (!(at = read_varint(at, batch_end, 5, &length))) return 0;
        if (length < 1 || length > batch_end - at) return 0;
        const uint8_t *record_end = at + length;
        uint8_t attributes = *at++;
        if (!(at = read_varint(at, record_end, 10, &timestamp_delta))) return 0;
        if (!(at = read_varint(at, record_end, 5, &delta)) || delta != expected) return 0;
        int64_t absolute, new_delta;
        if (__builtin_add_overflow(timestamp, timestamp_delta, &absolute)) return 0;
        if (__builtin_sub_overflow(absolute, made->first_timestamp, &new_delta)) return 0;
        if (absolute > newest) newest = absolute;
        uint8_t deltas[20], head[10];
        int written = write_varint(deltas, new_delta);
        written += write_varint(deltas + written, made->records + expected);
        int64_t content = record_end - at;
        int head_bytes = write_varint(head, 1 + written + content);
        if (made->end - out < head_bytes + 1 + written + content) return 0;
        memcpy(out, head, (size_t)head_bytes);
        out += head_bytes;
        *out++ = attributes;
        memcpy(out, deltas, (size_t)written);
        memcpy(out + written, at, (size_t)content);
        out += written + content;
        at = record_end;
    }
    if (at != batch_end) return 0;
    made->at = out;
    made->newest = newest;
    made->records += count;
    return 1;
}

/* Of the batches in `in`, from `next_offset` on: the first ones, as many as can be, whose offsets
 * follow each other, of one leader epoch, each of at most `batch_bytes`, with at most `most_bytes`
 * of records together. Returns how many bytes of `out` are the batch made of them; 0: there are not
 * two. taken: how many they are, and their bytes. The name has a number that is raised with these
 * arguments: Python finds no function in a library of other sources, and crashes nothing. */
int64_t headrace_join_2(const uint8_t *in, int64_t in_bytes, int64_t next_offset,
                        int64_t batch_bytes, int64_t most_bytes, uint8_t *out, int64_t out_bytes,
                        int64_t taken[2]) {
    if (out_bytes < HEADER || next_offset < 0) return 0;
    Made made = {out + HEADER, out + out_bytes, 0, 0, INT64_MIN};
    const uint8_t *at = in, *end = in + in_bytes;
    int64_t payload = 0, batches = 0, size = plain_bytes(at, end - at, next_offset, batch_bytes);
    while (size) {
        int64_t next = read_number(at, 8) + read_number(at + COUNT_AT, 4);
        const uint8_t *next_at = at + size;
        int64_t next_size = plain_bytes(next_at, end - next_at, next, batch_bytes);
        payload += size - HEADER;
        if (next_size && (read_number(next_at, 8) != next || payload + next_size - HEADER > most_bytes ||
                          memcmp(next_at + EPOCH_AT, in + EPOCH_AT, 4)))
            next_size = 0;
        if ((!batches && !next_size) || !append(at, size, &made)) break;
        batches++;
        at = next_at;
        size = next_size;
    }
    if (batches < 2) return 0;
    memcpy(out, in, HEADER); /* base offset, leader epoch, magic, first timestamp */
    write_number(out + LENGTH_AT, 4, made.at - out - EPOCH_AT);
    write_number(out + ATTRIBUTES_AT, 2, 0);
    write_number(out + DELTA_AT, 4, made.records - 1);
    write_number(out + MAX_TIMESTAMP_AT, 8, made.newest);
    memset(out + PRODUCER_AT, 0xFF, COUNT_AT - PRODUCER_AT); /* no producer id, epoch, sequence */
    write_number(out + COUNT_AT, 4, made.records);
    write_number(out + CRC_AT, 4, crc32c(out + ATTRIBUTES_AT, made.at - out - ATTRIBUTES_AT));
    taken[0] = batches;
    taken[1] = at - in;
    return made.at - out;
}
