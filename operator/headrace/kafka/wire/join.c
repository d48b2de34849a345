/* Puts the records of uncompressed record batches into one batch: see joining.py, which loads it.
 *
 * Of each record its length and its two deltas are written again, the rest is copied. Whatever the
 * bytes are, nothing is read outside of [in, in + in_bytes), or written outside of
 * [out, out + out_bytes): batches that contradict themselves make it return -1.
 */
#include <stdint.h>
#include <string.h>

enum { HEADER = 61, LENGTH_AT = 8, BASE_TIMESTAMP_AT = 27, COUNT_AT = 57, LOG_OVERHEAD = 12 };

static int64_t big_endian(const uint8_t *at, int bytes) {
    uint64_t number = 0;
    for (int n = 0; n < bytes; n++) number = number << 8 | at[n];
    return bytes == 4 ? (int32_t)number : (int64_t)number;
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

/* `batches` that follow each other in `in`, each with as many records as offsets. Returns how many
 * bytes of records are in `out`; found: the number of records, the newest timestamp. */
int64_t headrace_join(const uint8_t *in, int64_t in_bytes, int64_t batches, uint8_t *out,
                      int64_t out_bytes, int64_t found[2]) {
    const uint8_t *end = in + in_bytes;
    uint8_t *start = out, *out_end = out + out_bytes;
    int64_t records = 0, newest = INT64_MIN, first_timestamp = 0;
    for (int64_t batch = 0; batch < batches; batch++) {
        if (end - in < HEADER) return -1;
        int64_t size = big_endian(in + LENGTH_AT, 4) + LOG_OVERHEAD;
        int64_t timestamp = big_endian(in + BASE_TIMESTAMP_AT, 8);
        int64_t count = big_endian(in + COUNT_AT, 4);
        if (size < HEADER || size > end - in) return -1;
        if (!batch) first_timestamp = timestamp;
        const uint8_t *at = in + HEADER, *batch_end = in + size;
        for (int64_t expected = 0; expected < count; expected++) {
            int64_t length, timestamp_delta, delta;
            if (!(at = read_varint(at, batch_end, 5, &length))) return -1;
            if (length < 1 || length > batch_end - at) return -1;
            const uint8_t *record_end = at + length;
            uint8_t attributes = *at++;
            if (!(at = read_varint(at, record_end, 10, &timestamp_delta))) return -1;
            if (!(at = read_varint(at, record_end, 5, &delta)) || delta != expected) return -1;
            /* Unsigned: what overflows is no timestamp, but no undefined behaviour either. */
            int64_t absolute = (int64_t)((uint64_t)timestamp + (uint64_t)timestamp_delta);
            if (absolute > newest) newest = absolute;
            uint8_t deltas[20];
            int written = write_varint(
                deltas, (int64_t)((uint64_t)absolute - (uint64_t)first_timestamp));
            written += write_varint(deltas + written, records++);
            int64_t content = record_end - at;
            if (out_end - out < 10 + 1 + written + content) return -1;
            out += write_varint(out, 1 + written + content);
            *out++ = attributes;
            memcpy(out, deltas, (size_t)written);
            memcpy(out + written, at, (size_t)content);
            out += written + content;
            at = record_end;
        }
        if (at != batch_end) return -1;
        in = batch_end;
    }
    if (in != end || records > INT32_MAX) return -1;
    found[0] = records;
    found[1] = newest;
    return out - start;
}
