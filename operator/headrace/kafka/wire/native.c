/* The hot path of the wire client: find and describe the batches of a fetched chunk (scan), write the
 * headers that a producer's batches have (stamp), and make one batch of small ones (join). See
 * native.py, which loads this library, and scan.py and stamp.py, which do the same in Python.
 *
 * Whatever the bytes are, nothing is read outside of [in, in + in_bytes), or written outside of the
 * arrays that the caller passes with their sizes. Names have a number that is raised when arguments
 * change: Python finds no function in a library of other sources, and crashes nothing.
 */
#include "crc32c.h"

enum {
    LENGTH_AT = 8, EPOCH_AT = 12, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27, MAX_TIMESTAMP_AT = 35, PRODUCER_AT = 43, PRODUCER_EPOCH_AT = 51,
    SEQUENCE_AT = 53, COUNT_AT = 57, HEADER = 61
};

static int64_t read_number(const uint8_t *at, int bytes) {
    uint64_t number = 0;
    for (int n = 0; n < bytes; n++) number = number << 8 | at[n];
    return bytes == 2   ? (int16_t)number
           : bytes == 4 ? (int32_t)number
                        : (int64_t)number;
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

/* Joins the first batches in `in`, from `next_offset` on: as many as can be, whose offsets
 * follow each other, of one leader epoch, each of at most `batch_bytes`, with at most `most_bytes`
 * of records together. Returns how many bytes of `out` are the batch made of them; 0: there are not
 * two. taken: how many they are, and their bytes. */
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

/* Scan. Columns, verdicts and stops have the same numbers as in scan.py. */

enum {
    PLACE, SIZE, BASE, LAST, RECORDS, FLAGS, LEADER_EPOCH, MAX_TIMESTAMP, PRODUCER_ID, VERDICT,
    COLUMNS
};
enum { RUN_VERDICT, RUN_FIRST, RUN_ROWS, RUN_RECORDS, RUN_BYTES, RUN_COLUMNS };
enum {
    COPY, PLAIN, OLD_FORMAT, STARTS_INSIDE, HOLES, LOG_APPEND_TIME, MARKER, ABORTED, EMPTY,
    BEFORE_START
};
enum { END, TRUNCATED, CORRUPT, FULL };
enum { START = 17, OLDEST = 14, CODEC_BITS = 0x07, LAST_CODEC = 4 };
enum { LOG_APPEND_BIT = 0x08, TRANSACTIONAL_BIT = 0x10, CONTROL_BIT = 0x20 };

typedef struct { /* Producers whose open transaction was aborted. */
    const int64_t *pending, *pending_end; /* producer id and first offset, ascending by offset */
    int64_t *producers, count;
} Aborting;

static int64_t *find_producer(const Aborting *aborting, int64_t producer) {
    for (int64_t n = 0; n < aborting->count; n++)
        if (aborting->producers[n] == producer) return aborting->producers + n;
    return 0;
}

static void begin_aborted(Aborting *aborting, int64_t last_offset) {
    for (; aborting->pending < aborting->pending_end && aborting->pending[1] <= last_offset;
         aborting->pending += 2)
        if (!find_producer(aborting, aborting->pending[0]))
            aborting->producers[aborting->count++] = aborting->pending[0];
}

/* 1: the marker of the control batch at `in` aborts, 0: it does not, -1: it cannot be read. */
static int aborts(const uint8_t *in, int64_t size) {
    const int64_t key_at = HEADER + 5; /* behind length, attributes, two deltas, length of the key */
    if (size < key_at + 4 || in[key_at - 1] != 2 * 4) return -1;
    return read_number(in + key_at + 2, 2) == 0;
}

static int64_t verdict_of_data(const int64_t row[COLUMNS], int64_t start) {
    int dense = row[RECORDS] == row[LAST] - row[BASE] + 1;
    if (dense && row[RECORDS] && row[BASE] >= start && !(row[FLAGS] & LOG_APPEND_BIT))
        return row[FLAGS] ? COPY : PLAIN;
    if (row[LAST] < start) return BEFORE_START;
    if (!row[RECORDS]) return EMPTY;
    if (row[BASE] < start) return STARTS_INSIDE;
    return dense ? LOG_APPEND_TIME : HOLES;
}

/* Describes the batch at `in` in a row. Returns a stop, or -1 if it is whole and intact. */
static int describe(const uint8_t *in, int64_t left, int64_t next_offset, int64_t start,
                    Aborting *aborting, int64_t row[COLUMNS]) {
    if (left < START) return left ? TRUNCATED : END;
    int64_t length = read_number(in + LENGTH_AT, 4), size = length + EPOCH_AT;
    int magic = (int8_t)in[MAGIC_AT];
    if (magic < 0 || magic > 2 || length < (magic == 2 ? HEADER - EPOCH_AT : OLDEST)) return CORRUPT;
    row[BASE] = read_number(in, 8);
    if (row[BASE] < next_offset || row[BASE] > INT64_MAX - INT32_MAX - 1) return CORRUPT;
    if (size > left) return TRUNCATED;
    row[SIZE] = size;
    row[LEADER_EPOCH] = row[MAX_TIMESTAMP] = row[PRODUCER_ID] = -1;
    row[FLAGS] = row[RECORDS] = 0;
    row[LAST] = row[BASE];
    if (magic < 2) {
        row[VERDICT] = row[BASE] < start ? BEFORE_START : OLD_FORMAT;
        return -1;
    }
    int64_t delta = read_number(in + DELTA_AT, 4);
    row[RECORDS] = read_number(in + COUNT_AT, 4);
    if (row[RECORDS] < 0 || row[RECORDS] > delta + 1) return CORRUPT;
    if (crc32c(in + ATTRIBUTES_AT, size - ATTRIBUTES_AT) != (uint32_t)read_number(in + CRC_AT, 4))
        return CORRUPT;
    row[LAST] = row[BASE] + delta;
    row[FLAGS] = read_number(in + ATTRIBUTES_AT, 2) & 0xFFFF;
    if ((row[FLAGS] & CODEC_BITS) > LAST_CODEC) return CORRUPT;
    row[LEADER_EPOCH] = read_number(in + EPOCH_AT, 4);
    row[MAX_TIMESTAMP] = read_number(in + MAX_TIMESTAMP_AT, 8);
    row[PRODUCER_ID] = read_number(in + PRODUCER_AT, 8);
    if (!(row[FLAGS] & (TRANSACTIONAL_BIT | CONTROL_BIT))) {
        row[VERDICT] = verdict_of_data(row, start);
        return -1;
    }
    begin_aborted(aborting, row[LAST]);
    int64_t *aborted = find_producer(aborting, row[PRODUCER_ID]);
    if (row[FLAGS] & CONTROL_BIT) {
        int ends = aborted ? aborts(in, size) : 0;
        if (ends < 0) return CORRUPT;
        if (ends) *aborted = aborting->producers[--aborting->count];
        row[VERDICT] = MARKER;
    } else {
        row[VERDICT] = aborted ? ABORTED : verdict_of_data(row, start);
    }
    return -1;
}

/* Adds a row to its run, or begins another: where the verdict or the leader epoch changes, or the
 * offsets have a gap. Returns how many runs there are, at most one for each row. */
static int64_t add_to_run(const int64_t *rows, int64_t number, int64_t *runs, int64_t count) {
    const int64_t *row = rows + number * COLUMNS, *before = row - COLUMNS;
    int64_t *run = runs + (count - 1) * RUN_COLUMNS;
    if (!count || row[VERDICT] != before[VERDICT] || row[LEADER_EPOCH] != before[LEADER_EPOCH] ||
        row[BASE] != before[LAST] + 1) {
        run = runs + count++ * RUN_COLUMNS;
        run[RUN_VERDICT] = row[VERDICT];
        run[RUN_FIRST] = number;
        run[RUN_ROWS] = run[RUN_RECORDS] = run[RUN_BYTES] = 0;
    }
    run[RUN_ROWS]++;
    run[RUN_RECORDS] += row[RECORDS];
    run[RUN_BYTES] += row[SIZE];
    return count;
}

/* Describes all batches of `in`, which are wanted from offset `start` on. `aborted` are `count`
 * pairs of a producer id and the first offset of its aborted transaction, ascending by offset;
 * `producers` has room for `count` ids. `rows` and `runs` have room for `most` each. found: rows,
 * runs, and the bytes of the batches described. Returns a stop. */
int64_t headrace_scan_1(const uint8_t *in, int64_t in_bytes, int64_t start, const int64_t *aborted,
                        int64_t *producers, int64_t count, int64_t *rows, int64_t *runs,
                        int64_t most, int64_t found[3]) {
    Aborting aborting = {aborted, aborted + 2 * count, producers, 0};
    int64_t place = 0, next_offset = 0, number = 0, run_count = 0;
    int stop;
    for (;;) {
        int64_t described[COLUMNS];
        stop = describe(in + place, in_bytes - place, next_offset, start, &aborting, described);
        if (stop < 0 && number == most) stop = FULL;
        if (stop >= 0) break;
        described[PLACE] = place;
        memcpy(rows + number * COLUMNS, described, sizeof described);
        run_count = add_to_run(rows, number++, runs, run_count);
        place += described[SIZE];
        next_offset = described[LAST] + 1;
    }
    found[0] = number;
    found[1] = run_count;
    found[2] = place;
    return stop;
}

/* Stamp. */

enum { KEPT_BITS = 0x0F, CHANGED_END = COUNT_AT, MAX_SEQUENCE = 0x7FFFFFFF };

/* Multiplies two polynomials modulo that of CRC-32C, as zlib's crc32_combine does: appending zeros to
 * what a checksum covers multiplies it by a power of x. */
static uint32_t multiplied(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b >> 1 ^ (b & 1 ? 0x82F63B78u : 0);
    }
    return product;
}

static uint32_t squares[32]; /* x to the power of 8 * 2^n */

__attribute__((constructor)) static void make_squares(void) {
    uint32_t power = 1u << 30; /* x */
    for (int n = 0; n < 3; n++) power = multiplied(power, power);
    for (int n = 0; n < 32; n++) {
        squares[n] = power;
        power = multiplied(power, power);
    }
}

static uint32_t shifted(uint32_t crc, int64_t bytes) {
    for (int n = 0; bytes && crc; n++, bytes >>= 1)
        if (bytes & 1) crc = multiplied(squares[n], crc);
    return crc;
}

/* Writes the header of each of `count` batches, which `rows` describe in `in`, behind each other to
 * `out`, which has room for them: with that producer, and sequences from `sequence` on. The checksum
 * is adjusted by what changes, so that it fits only where the batch's own did. Returns the sequence
 * after the last batch; -1: a row is not within `in`, and nothing is to be used. */
int64_t headrace_stamp_1(const uint8_t *in, int64_t in_bytes, const int64_t *rows, int64_t count,
                         int64_t producer_id, int64_t producer_epoch, int64_t transactional,
                         int64_t sequence, uint8_t *out) {
    for (; count; count--, rows += COLUMNS, out += HEADER) {
        int64_t place = rows[PLACE], size = rows[SIZE];
        if (place < 0 || size < HEADER || place > in_bytes || size > in_bytes - place) return -1;
        const uint8_t *batch = in + place;
        int64_t attributes = read_number(batch + ATTRIBUTES_AT, 2) & KEPT_BITS;
        memcpy(out, batch, HEADER);
        write_number(out, 8, 0);
        write_number(out + EPOCH_AT, 4, -1);
        write_number(out + ATTRIBUTES_AT, 2, attributes | (transactional ? TRANSACTIONAL_BIT : 0));
        write_number(out + PRODUCER_AT, 8, producer_id);
        write_number(out + PRODUCER_EPOCH_AT, 2, producer_epoch);
        write_number(out + SEQUENCE_AT, 4, sequence);
        uint32_t changed = crc32c(batch + ATTRIBUTES_AT, CHANGED_END - ATTRIBUTES_AT) ^
                           crc32c(out + ATTRIBUTES_AT, CHANGED_END - ATTRIBUTES_AT);
        changed = shifted(changed, size - CHANGED_END);
        write_number(out + CRC_AT, 4, (uint32_t)read_number(batch + CRC_AT, 4) ^ changed);
        sequence = (sequence + rows[RECORDS]) & MAX_SEQUENCE;
    }
    return sequence;
}
