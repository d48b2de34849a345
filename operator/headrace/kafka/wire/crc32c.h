/* CRC-32C, by the processor's instruction where it has one, else by tables. For join.c alone. */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && !defined(BY_TABLES) /* which a test defines */
#include <cpuid.h>
#define CRC_STEP(crc, word) __asm__("crc32q %1, %0" : "+r"(crc) : "r"(word))
static int has_instruction(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_SSE4_2;
}
#elif defined(__aarch64__) && defined(__linux__) && !defined(BY_TABLES)
#include <sys/auxv.h>
#define CRC_STEP(crc, word) \
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word))
static int has_instruction(void) { return getauxval(AT_HWCAP) >> 7 & 1; } /* HWCAP_CRC32 */
#else
#define CRC_STEP(crc, word) (void)(word)
static int has_instruction(void) { return 0; }
#endif

enum { LANE = 512 }; /* Bytes of a lane. The instruction takes three cycles, so three lanes run at once. */

static int by_instruction;
static uint32_t after[8][256];     /* Checksum of each byte, followed by 0 to 7 zeros. */
static uint32_t moved[2][4][256];  /* Its four bytes after one and two lanes of zeros. */

__attribute__((constructor)) static void make_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        after[0][byte] = crc;
    }
    for (int zeros = 1; zeros < 8; zeros++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = after[zeros - 1][byte];
            after[zeros][byte] = crc >> 8 ^ after[0][crc & 255];
        }
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = 1u << bit;
        for (int lanes = 0; lanes < 2; lanes++) {
            for (int n = 0; n < LANE; n++) crc = crc >> 8 ^ after[0][crc & 255];
            for (int byte = 0; byte < 256; byte++)
                if (byte >> (bit & 7) & 1) moved[lanes][bit >> 3][byte] ^= crc;
        }
    }
    by_instruction = has_instruction();
}

static uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint32_t move(uint32_t by[4][256], uint64_t crc) {
    return by[0][crc & 255] ^ by[1][crc >> 8 & 255] ^ by[2][crc >> 16 & 255] ^ by[3][crc >> 24];
}

static uint32_t crc32c(const uint8_t *at, int64_t bytes) {
    uint64_t crc = 0xFFFFFFFFu;
    if (by_instruction) {
        for (; bytes >= 3 * LANE; at += 3 * LANE, bytes -= 3 * LANE) {
            uint64_t second = 0, third = 0;
            for (int n = 0; n < LANE; n += 8) {
                CRC_STEP(crc, word_at(at + n));
                CRC_STEP(second, word_at(at + n + LANE));
                CRC_STEP(third, word_at(at + n + 2 * LANE));
            }
            crc = move(moved[1], crc) ^ move(moved[0], second) ^ third;
        }
        for (; bytes >= 8; at += 8, bytes -= 8) CRC_STEP(crc, word_at(at));
    } else {
        for (; bytes >= 8; at += 8, bytes -= 8) {
            uint64_t mixed = crc ^ word_at(at);
            crc = 0;
            for (int n = 0; n < 8; n++) crc ^= after[7 - n][mixed >> 8 * n & 255];
        }
    }
    for (; bytes > 0; bytes--) crc = crc >> 8 ^ after[0][(crc ^ *at++) & 255];
    return ~(uint32_t)crc;
}
